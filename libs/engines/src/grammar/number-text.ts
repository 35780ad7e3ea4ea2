/** What a schema says of a number. */
export interface NumberBounds {
  readonly isInteger: boolean;
  readonly minimum?: number | undefined;
  readonly exclusiveMinimum?: number | undefined;
  readonly maximum?: number | undefined;
  readonly exclusiveMaximum?: number | undefined;
}

/** Digits before and behind the point; a double holds any integer of the first. */
const MAX_DIGITS = 15;
const MAX_FRACTION = 15;
const LARGEST = 10n ** BigInt(MAX_DIGITS) - 1n;

const ANY_INTEGER = `-?(?:0|[1-9]\\d{0,${MAX_DIGITS - 1}})`;
const ANY_NUMBER = `${ANY_INTEGER}(?:\\.\\d{1,${MAX_FRACTION}})?(?:[eE][-+]?\\d{1,2})?`;

/** A bound of absolute value: digits before the point as a number, digits behind it as a text. */
interface Bound {
  readonly whole: bigint;
  readonly fraction: string;
  readonly isOpen: boolean;
}

const ZERO: Bound = { whole: 0n, fraction: "", isOpen: false };

/**
 * The regular expression of the JSON numbers within the bounds; undefined where there is none. Bounded
 * numbers are written without an exponent.
 */
export function numberPattern(bounds: NumberBounds): string | undefined {
  const low = lowerOf(bounds);
  const high = upperOf(bounds);
  if (low === undefined && high === undefined) return bounds.isInteger ? ANY_INTEGER : ANY_NUMBER;
  const patterns = [
    ...positive(low, high, bounds.isInteger),
    ...positive(mirrored(high), mirrored(low), bounds.isInteger, true),
  ];
  return patterns.length === 0 ? undefined : patterns.join("|");
}

/** The regular expression of a number's texts without an exponent. */
export function spellingsOf(value: number): string {
  const { isNegative, whole, fraction } = signed(value);
  const sign = value === 0 ? "-?" : isNegative ? "-" : "";
  return `${sign}${whole}${fraction === "" ? "(?:\\.0+)?" : `\\.${fraction}0*`}`;
}

/** A bound with its sign. */
interface Signed extends Bound {
  readonly isNegative: boolean;
}

function lowerOf({ minimum, exclusiveMinimum }: NumberBounds): Signed | undefined {
  const isOpen =
    exclusiveMinimum !== undefined && !(minimum !== undefined && minimum > exclusiveMinimum);
  if (isOpen) return exclusiveMinimum === 0 ? signed(0, true) : signed(nextAbove(exclusiveMinimum));
  return minimum === undefined ? undefined : signed(minimum);
}

function upperOf({ maximum, exclusiveMaximum }: NumberBounds): Signed | undefined {
  const isOpen =
    exclusiveMaximum !== undefined && !(maximum !== undefined && maximum < exclusiveMaximum);
  if (isOpen)
    return exclusiveMaximum === 0 ? signed(0, true) : signed(-nextAbove(-exclusiveMaximum));
  return maximum === undefined ? undefined : signed(maximum);
}

/** The next double: a text between the two could be read as the lower one. Not for zero. */
function nextAbove(value: number): number {
  const double = new Float64Array([value]);
  const bits = new BigInt64Array(double.buffer);
  bits[0] = (bits[0] ?? 0n) + (value > 0 ? 1n : -1n);
  return Math.min(double[0] ?? value, Number.MAX_VALUE);
}

function mirrored(bound: Signed | undefined): Signed | undefined {
  if (bound === undefined) return undefined;
  const isZero = bound.whole === 0n && bound.fraction === "";
  return { ...bound, isNegative: isZero ? false : !bound.isNegative };
}

/** The digits of a number, however JavaScript writes it. */
function signed(value: number, isOpen = false): Signed {
  const [, sign, whole = "", fraction = "", exponent = "0"] =
    /^(-?)(\d+)(?:\.(\d+))?(?:e([-+]\d+))?$/.exec(String(value)) ?? [];
  const shift = Number(exponent);
  const digits = `${"0".repeat(Math.max(0, -shift))}${whole}${fraction}${"0".repeat(Math.max(0, shift))}`;
  const point = Math.max(0, -shift) + whole.length + shift;
  return {
    isNegative: sign === "-",
    whole: BigInt(digits.slice(0, point) || "0"),
    fraction: digits.slice(point).replace(/0+$/, ""),
    isOpen,
  };
}

/** The numbers from 0 on within the bounds; written with a minus, and then without zero itself. */
function positive(
  low: Signed | undefined,
  high: Signed | undefined,
  isInteger: boolean,
  isMinus = false,
): string[] {
  if (high?.isNegative) return [];
  const isFromZero = low === undefined || low.isNegative;
  const from: Bound = isFromZero ? { ...ZERO, isOpen: isMinus } : low;
  const isLarge = from.whole > LARGEST;
  const most: Bound = { whole: isLarge ? from.whole * 10n : LARGEST, fraction: "", isOpen: false };
  // A bound of hundreds of digits is met by numbers of fewer.
  const to = high === undefined || (high.whole > LARGEST && !isLarge) ? most : high;
  // Minus zero is zero: it is written without the sign.
  const isZeroLow = from.whole === 0n && from.fraction === "";
  const start = isMinus && isZeroLow ? { ...from, isOpen: true } : from;
  const parts = isInteger ? integers(start, to) : decimals(start, to);
  return isMinus ? parts.map((part) => `-(?:${part})`) : parts;
}

function integers(low: Bound, high: Bound): string[] {
  const from = low.whole + (low.isOpen || low.fraction !== "" ? 1n : 0n);
  const to = high.whole - (high.isOpen && high.fraction === "" ? 1n : 0n);
  return wholeRange(from, to);
}

function decimals(low: Bound, high: Bound): string[] {
  if (low.whole > high.whole) return [];
  if (low.whole === high.whole) return ends(low.whole, fractions(low, high));
  const below: Bound = { whole: low.whole, fraction: "", isOpen: false };
  const between = wholeRange(low.whole + 1n, high.whole - 1n);
  return [
    ...ends(low.whole, fractions(low, undefined)),
    ...between.map((part) => `(?:${part})(?:\\.\\d{1,${MAX_FRACTION}})?`),
    ...ends(high.whole, fractions(below, high)),
  ];
}

function ends(whole: bigint, suffixes: readonly string[]): string[] {
  return suffixes.length === 0 ? [] : [`${whole}(?:${suffixes.join("|")})`];
}

/** The ways to continue behind the whole part so that the fraction is within the bounds. */
function fractions(low: Bound, high: Bound | undefined): string[] {
  const width = Math.max(low.fraction.length, high?.fraction.length ?? 0, 0);
  const from = padded(low.fraction, width);
  const to = high === undefined ? 10n ** BigInt(width) : padded(high.fraction, width);
  const found: string[] = [];
  for (let digits = 0; digits <= width; digits++) {
    const unit = 10n ** BigInt(width - digits);
    const first = ceilDivide(from + (low.isOpen ? 1n : 0n), unit);
    const last = (to - (high === undefined || high.isOpen ? 1n : 0n)) / unit;
    if (to - (high === undefined || high.isOpen ? 1n : 0n) < 0n) continue;
    if (digits === 0) {
      if (first <= 0n) found.push("");
    } else {
      found.push(...fixedRange(first, last, digits).map((part) => `\\.${part}`));
    }
  }
  return [...found, ...longer(from, to, width, low, high)];
}

/** Fractions with more digits than the bounds have. */
function longer(
  from: bigint,
  to: bigint,
  width: number,
  low: Bound,
  high: Bound | undefined,
): string[] {
  const point = width === 0 ? "\\." : "";
  const room = Math.max(2, MAX_FRACTION - width);
  const inside = `${point}\\d{1,${room}}`;
  const above = `${point}0{0,${room - 1}}[1-9]\\d{0,${room - 1}}`;
  const last = to - 1n;
  const head = (parts: string[]): string[] =>
    width === 0 ? parts : parts.map((part) => `\\.${part}`);
  const spans: string[] = [];
  const first = low.isOpen ? from + 1n : from;
  for (const part of width === 0 ? (first <= last ? [""] : []) : fixedRange(first, last, width)) {
    spans.push(`${part}${inside}`);
  }
  if (low.isOpen && from <= last) {
    spans.push(`${width === 0 ? "" : from.toString().padStart(width, "0")}${above}`);
  }
  const isClosed = high !== undefined && !high.isOpen && to >= from + (low.isOpen ? 1n : 0n);
  if (isClosed)
    spans.push(`${width === 0 ? "" : to.toString().padStart(width, "0")}${point}0{1,${room}}`);
  return head(spans);
}

function padded(fraction: string, width: number): bigint {
  return BigInt(fraction.padEnd(width, "0") || "0");
}

function ceilDivide(value: bigint, unit: bigint): bigint {
  return (value + unit - 1n) / unit;
}

/** Whole numbers without leading zeros. */
function wholeRange(from: bigint, to: bigint): string[] {
  const parts: string[] = [];
  for (let low = from; low <= to; ) {
    const digits = low.toString().length;
    const end = 10n ** BigInt(digits) - 1n;
    const high = end < to ? end : to;
    parts.push(...fixedRange(low, high, digits));
    low = high + 1n;
  }
  return parts;
}

/** Numbers of that many digits, leading zeros included. */
function fixedRange(from: bigint, to: bigint, digits: number): string[] {
  if (from > to) return [];
  return sameLength(from.toString().padStart(digits, "0"), to.toString().padStart(digits, "0"));
}

function sameLength(low: string, high: string): string[] {
  if (low === high) return [low];
  const [a, b] = [Number(low[0]), Number(high[0])];
  const rest = low.length - 1;
  if (rest === 0) return [`[${a}-${b}]`];
  if (a === b) return sameLength(low.slice(1), high.slice(1)).map((part) => `${a}${part}`);
  const isLowWhole = /^\d0*$/.test(low);
  const isHighWhole = /^\d9*$/.test(high);
  const [from, to] = [isLowWhole ? a : a + 1, isHighWhole ? b : b - 1];
  const below = isLowWhole
    ? []
    : sameLength(low.slice(1), "9".repeat(rest)).map((part) => `${a}${part}`);
  const above = isHighWhole
    ? []
    : sameLength("0".repeat(rest), high.slice(1)).map((part) => `${b}${part}`);
  return [...below, ...(from <= to ? [`[${from}-${to}]\\d{${rest}}`] : []), ...above];
}
