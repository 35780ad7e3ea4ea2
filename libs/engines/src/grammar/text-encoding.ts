/** How characters are written: as they are in UTF-8, or as between the quotes of a JSON string. */
export type Encoding = "plain" | "json";

/** Inclusive. */
type Range = readonly [min: number, max: number];

/** The characters that JSON strings write as a backslash and a letter. */
const SHORT_ESCAPES: ReadonlyMap<number, string> = new Map([
  [0x08, "\\b"],
  [0x09, "\\t"],
  [0x0a, "\\n"],
  [0x0c, "\\f"],
  [0x0d, "\\r"],
  [0x22, '\\"'],
  [0x5c, "\\\\"],
]);

const FIRST_PLAIN = 0x20;
const SURROGATES: Range = [0xd800, 0xdfff];
/** The last code points of one, two, three and four bytes of UTF-8. */
const LAST_OF_LENGTH = [0x7f, 0x7ff, 0xffff, 0x10ffff];

/** The sequences of byte ranges that spell the characters of the range. Each has one spelling. */
export function encodedRanges(range: { min: number; max: number }, encoding: Encoding): Range[][] {
  const { min, max } = range;
  if (encoding === "plain") return utf8Ranges(min, max);
  const paths: Range[][] = [];
  for (let point = min; point <= Math.min(max, FIRST_PLAIN - 1); point++) {
    const hex = point.toString(16).padStart(4, "0");
    paths.push(spelled(SHORT_ESCAPES.get(point) ?? `\\u${hex}`));
  }
  let from = Math.max(min, FIRST_PLAIN);
  for (const point of [0x22, 0x5c]) {
    if (point < from || point > max) continue;
    paths.push(...utf8Ranges(from, point - 1), spelled(SHORT_ESCAPES.get(point) as string));
    from = point + 1;
  }
  return [...paths, ...utf8Ranges(from, max)];
}

function spelled(text: string): Range[] {
  return Array.from(Buffer.from(text), (byte): Range => [byte, byte]);
}

/** The range cut where the length of UTF-8 changes, without the surrogates, which have none. */
function utf8Ranges(min: number, max: number): Range[][] {
  const [first, last] = SURROGATES;
  if (min > max) return [];
  if (min <= last && max >= first) {
    return [...utf8Ranges(min, first - 1), ...utf8Ranges(last + 1, max)];
  }
  const end = LAST_OF_LENGTH.find((point) => min <= point) as number;
  if (max > end) return [...utf8Ranges(min, end), ...utf8Ranges(end + 1, max)];
  const low = Buffer.from(String.fromCodePoint(min));
  const high = Buffer.from(String.fromCodePoint(max));
  return sequences([...low], [...high]);
}

/** The byte sequences of one length between two, as sequences of byte ranges. */
function sequences(low: readonly number[], high: readonly number[]): Range[][] {
  const [a, ...lowRest] = low as [number, ...number[]];
  const [b, ...highRest] = high as [number, ...number[]];
  if (lowRest.length === 0) return [[[a, b]]];
  if (a === b) return sequences(lowRest, highRest).map((rest) => [[a, a], ...rest]);
  const least = lowRest.map(() => 0x80);
  const most = lowRest.map(() => 0xbf);
  const isLowWhole = lowRest.every((byte) => byte === 0x80);
  const isHighWhole = highRest.every((byte) => byte === 0xbf);
  const from = isLowWhole ? a : a + 1;
  const to = isHighWhole ? b : b - 1;
  const paths: Range[][] = [];
  if (!isLowWhole)
    paths.push(...sequences(lowRest, most).map((rest): Range[] => [[a, a], ...rest]));
  if (from <= to) paths.push([[from, to], ...least.map((): Range => [0x80, 0xbf])]);
  if (!isHighWhole)
    paths.push(...sequences(least, highRest).map((rest): Range[] => [[b, b], ...rest]));
  return paths;
}
