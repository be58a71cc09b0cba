"""Length of a closed tour through 24 cities; smaller is better."""
import json, math, random, subprocess, sys
from coral.grader import TaskGrader

READ = "import json, runpy, sys; print(json.dumps(runpy.run_path(sys.argv[1])['TOUR']))"
RNG = random.Random(24)
CITIES = [(RNG.random(), RNG.random()) for _ in range(24)]

class Grader(TaskGrader):
    def evaluate(self):
        done = subprocess.run([sys.executable, "-c", READ, self.codebase_path + "/tour.py"], capture_output=True, text=True, timeout=self.timeout)
        if done.returncode != 0:
            return self.fail("tour.py failed: " + done.stderr.strip()[-200:])
        tour = json.loads(done.stdout)
        if sorted(tour) != list(range(24)):
            return self.fail("TOUR must name each city 0..23 once")
        length = sum(math.dist(CITIES[a], CITIES[b]) for a, b in zip(tour, tour[1:] + tour[:1]))
        return self.score(length, f"tour length {length:.6f}")
