"""A streaming query whose driver, tasks and broker are killed, and the proof that nobody can tell.

faults.py    where something dies, and the sink that has it die there
driver.py    the job: a program of its own, one life per start
rounds.py    starts it again and again, feeds it, watches what it writes, and judges

pipeline_driver.py    a whole pipeline instead, with a process that dies at a table's commit
pipeline_rounds.py    its lives, and whether the tables are what the topic is
"""
