import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { StopScanner } from "./stop-scanner.ts";

/** The definition, one character at a time: stop when the text so far ends with a stop string. */
function naive(text: string, stops: readonly string[], marks: readonly string[] = []) {
  for (let end = 1; end <= text.length; end++) {
    const seen = text.slice(0, end);
    if (marks.some((mark) => seen.endsWith(mark))) break;
    const hits = stops.filter((stop) => stop !== "" && seen.endsWith(stop));
    if (hits.length === 0) continue;
    const longest = Math.max(...hits.map((stop) => stop.length));
    return { text: seen.slice(0, end - longest), stopped: true };
  }
  return { text, stopped: false };
}

function scan(chunks: readonly string[], stops: readonly string[], marks: readonly string[] = []) {
  const scanner = new StopScanner(stops, marks);
  let text = "";
  let stopped = false;
  for (const chunk of chunks) {
    const out = scanner.push(chunk);
    text += out.text;
    stopped = out.stopped;
  }
  return { text: text + scanner.flush(), stopped };
}

describe("StopScanner", () => {
  it("lets everything through at once where there is no stop string", () => {
    expect(new StopScanner([]).push("abc")).toEqual({ text: "abc", stopped: false });
    expect(new StopScanner([""]).push("abc")).toEqual({ text: "abc", stopped: false });
  });

  it("cuts before a stop string that spans pushes", () => {
    const scanner = new StopScanner(["\nUser:"]);
    expect(scanner.push("hi\nUs")).toEqual({ text: "hi", stopped: false });
    expect(scanner.push("er: x")).toEqual({ text: "", stopped: true });
    expect(scanner.push("more")).toEqual({ text: "", stopped: true });
    expect(scanner.flush()).toBe("");
  });

  it("gives held text back where the stop string does not come", () => {
    const scanner = new StopScanner(["END"]);
    expect(scanner.push("aEN").text).toBe("a");
    expect(scanner.push("EN").text).toBe("EN");
    expect(scanner.flush()).toBe("EN");
  });

  it("holds back the longest suffix, not the first that fits", () => {
    const scanner = new StopScanner(["b", "aab"]);
    expect(scanner.push("xaa").text).toBe("x");
    expect(scanner.push("ac").text).toBe("aaac");
  });

  it("takes the stop string that completes first, and of those the longest", () => {
    expect(scan(["xabc"], ["abc", "b"])).toEqual({ text: "xa", stopped: true });
    expect(scan(["xab"], ["b", "ab"])).toEqual({ text: "x", stopped: true });
  });

  it("finds U+FFFD for a stop string with a lone surrogate and splits no character", () => {
    expect(scan(["a😀b"], ["\ude00"])).toEqual({ text: "a😀b", stopped: false });
    expect(scan(["a\ufffdb"], ["\ude00"])).toEqual({ text: "a", stopped: true });
  });

  it("equals the naive model for every chunking", () => {
    const letters = fc.string({ unit: fc.constantFrom("a", "b", "c", "é", "😀"), maxLength: 40 });
    const stop = fc.string({
      unit: fc.constantFrom("a", "b", "c", "é", "😀"),
      minLength: 1,
      maxLength: 5,
    });
    const chunks = fc.array(letters, { maxLength: 8 });
    fc.assert(
      fc.property(chunks, fc.array(stop, { maxLength: 4 }), (pieces, stops) => {
        expect(scan(pieces, stops)).toEqual(naive(pieces.join(""), stops));
      }),
      { numRuns: 5000 },
    );
  });

  it("equals the naive model with marks, behind which no stop string counts", () => {
    const letters = fc.string({ unit: fc.constantFrom("a", "b", "c"), maxLength: 20 });
    const part = fc.string({ unit: fc.constantFrom("a", "b", "c"), minLength: 1, maxLength: 4 });
    const parts = fc.array(part, { minLength: 1, maxLength: 3 });
    fc.assert(
      fc.property(fc.array(letters, { maxLength: 8 }), parts, parts, (pieces, stops, marks) => {
        expect(scan(pieces, stops, marks)).toEqual(naive(pieces.join(""), stops, marks));
      }),
      { numRuns: 5000 },
    );
  });

  it("counts a mark that begins in text without stop strings", () => {
    const scanner = new StopScanner(["x"], ["<call>"]);
    scanner.skip("xx<ca");
    expect(scanner.push("ll>x")).toEqual({ text: "ll>x", stopped: false });
    expect(scanner.push("x")).toEqual({ text: "x", stopped: false });
  });

  it("holds back no more than may begin a stop string", () => {
    const text = fc.string({ unit: fc.constantFrom("a", "b"), maxLength: 20 });
    const stop = fc.string({ unit: fc.constantFrom("a", "b"), minLength: 1, maxLength: 5 });
    fc.assert(
      fc.property(text, fc.array(stop, { minLength: 1, maxLength: 3 }), (whole, stops) => {
        const scanner = new StopScanner(stops);
        const out = scanner.push(whole);
        if (out.stopped) return;
        const held = whole.slice(out.text.length);
        expect(held === "" || stops.some((s) => s.startsWith(held) && s !== held)).toBe(true);
      }),
      { numRuns: 2000 },
    );
  });
});
