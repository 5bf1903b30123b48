"""How tests have Java run: a test is over before code that is compiled well has paid for itself."""

QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
