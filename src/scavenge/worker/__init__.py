"""The worker process: an environment in a process of its own, outside the run.

``python -m scavenge.worker`` is started by the run and speaks with it in messages over one socket. Here the environment
is loaded, its dataset is read and its rollouts are played; what they ask of the model goes to the run's gateway. A
composition root of its own: nothing of the run imports this room.
"""
