"""Streaming queries and jobs whose driver, tasks and broker are killed, and checks of their output.

faults.py     points of failure, and the sink that dies there
driver.py     the job, a program that is started once per round
rounds.py     restarts the job, produces records, and checks what it writes

pipeline_driver.py, pipeline_rounds.py         a pipeline that is killed at commits of its tables
materialize_driver.py, materialize_rounds.py   the job materialize, killed around commits
tier_rounds.py                                 the job tier, killed around manifests
"""
