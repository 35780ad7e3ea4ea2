import { expect, test } from "vitest";
import { createLogger, logLevelOf } from "./logger.ts";
import { plainLines } from "./plain-lines.ts";

test("logger: the environment sets its level, an unknown level is info", () => {
  expect(logLevelOf({ HEDDLE_LOG_LEVEL: "error" })).toBe("error");
  expect(logLevelOf({ HEDDLE_LOG_LEVEL: "loud" })).toBe("info");
  expect(logLevelOf({})).toBe("info");
});

test("logger: a line has service, level and time; prompts and keys are redacted", () => {
  const lines: string[] = [];
  const destination = { write: (line: string) => void lines.push(line) };
  const logger = createLogger({ service: "worker", level: "warn", destination });
  logger.info({}, "not written");
  logger.warn({ call: { prompt: "secret", authorization: "Bearer secret" } }, "a call");
  logger.warn({ authorization: "Bearer secret", messages: ["secret"], input: "secret" }, "flat");
  logger.warn({ node: { clusterToken: "secret", jobToken: "secret" }, apiKey: "secret" }, "keys");
  expect(lines).toHaveLength(3);
  const line = JSON.parse(lines[0] ?? "") as Record<string, unknown>;
  expect(line).toMatchObject({ service: "worker", level: "warn", msg: "a call" });
  expect(line["time"]).toMatch(/^\d{4}-\d\d-\d\dT/);
  expect(lines.join("")).not.toContain("secret");
});

test("logger: lines for people have the level, the message and the fields", () => {
  const lines: string[] = [];
  const destination = plainLines({ write: (line) => lines.push(line) });
  const logger = createLogger({ service: "trainer", level: "info", destination });
  logger.debug({}, "not written");
  logger.info({}, "resumed from checkpoint a1-r000005-s1");
  logger.warn({ code: "unavailable", round: 5, apiKey: "secret" }, "no checkpoint");
  expect(lines).toEqual([
    "resumed from checkpoint a1-r000005-s1\n",
    "warn: no checkpoint code=unavailable round=5 apiKey=[Redacted]\n",
  ]);
});
