"""The RocketMQ client; `dragoman.client.rocketmq` has its public names."""
