"""verifiers: the tasks as a taskset whose episodes run in our sandbox, with our graders as rewards."""
