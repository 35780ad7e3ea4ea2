import { describe, expect, it } from "vitest";
import { describeLogLine, parseLogLine } from "./log-line.ts";

describe("log line", () => {
  it("a pino record is a message with its fields", () => {
    const text =
      '{"level":40,"time":1,"pid":2,"hostname":"h","msg":"slow","ms":12,"path":"/a","why":"b c","err":{"message":"boom","stack":"..."}}';
    const line = parseLogLine(text);
    expect(line).toMatchObject({ kind: "record", level: 40, message: "slow" });
    expect(describeLogLine(line)).toBe('slow ms=12 path=/a why="b c" err="boom"');
  });

  it("may name its level", () => {
    expect(parseLogLine('{"level":"error","msg":"x"}')).toMatchObject({ level: 50 });
  });

  it("other text is shown unchanged", () => {
    for (const text of ["plain", '{"a":1}', "{broken", "null", '{"level":"odd"}']) {
      expect(describeLogLine(parseLogLine(text))).toBe(text);
    }
  });
});
