"""The Java producer and consumer of a run, as a process of their own that writes a history of its own."""

import subprocess

from world import CACHE, ROOT


class JavaPair:
    def __init__(self, directory, bootstrap, keys, rate, upper):
        self.history = directory / "history-java.jsonl"
        self._log = open(directory / "java.log", "w", encoding="utf-8")
        with open(self.history, "w", encoding="utf-8") as history:
            self.process = subprocess.Popen(
                ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", "-cp", f"{CACHE}/kafka-libs/*",
                 f"-Dlog4j2.configurationFile={ROOT}/tests/kafka/log4j2.properties",
                 str(ROOT / "tests" / "chaos" / "ChaosClient.java"), bootstrap, ",".join(keys), str(rate), str(upper)],
                stdin=subprocess.PIPE, stdout=history, stderr=self._log)

    def check(self):
        if self.process.poll() is not None:
            raise RuntimeError(f"the Java clients ended with {self.process.returncode}: see java.log")

    def finish(self, seconds):
        """Ends its input and waits: returns what is wrong with its end, if anything is."""
        self.process.stdin.close()
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return f"the Java clients were not done within {seconds} s"
        return f"the Java clients ended with {code}: see java.log" if code else None

    def stop(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(30)
        self._log.close()
