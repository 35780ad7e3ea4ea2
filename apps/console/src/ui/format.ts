import { STRINGS } from "../strings.ts";

const UNITS = ["B", "KB", "MB", "GB", "TB", "PB"];
const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });

export function formatCount(count: number): string {
  return whole.format(count);
}

/** With three significant digits, and thousands as `1.2K`. */
export function formatCompact(value: number): string {
  return Math.abs(value) < 1_000 ? short.format(value) : compact.format(value);
}

/** In decimal units, as vendors of memory and disks count. */
export function formatBytes(bytes: number): string {
  let value = bytes;
  let unit = 0;
  while (Math.abs(value) >= 1000 && unit < UNITS.length - 1) {
    value /= 1000;
    unit++;
  }
  return `${short.format(value)} ${UNITS[unit]}`;
}

export function formatPercent(percent: number): string {
  return `${Math.round(percent)}%`;
}

const SPANS = [
  ["d", 86_400],
  ["h", 3_600],
  ["min", 60],
  ["s", 1],
] as const;

/** A duration in its two largest units, as `2 h 5 min`. */
export function formatSpan(ms: number): string {
  let seconds = Math.max(0, Math.round(ms / 1000));
  const parts: string[] = [];
  for (const [unit, size] of SPANS) {
    const count = Math.floor(seconds / size);
    if (count === 0 && parts.length === 0 && unit !== "s") continue;
    if (count > 0 || parts.length === 0) parts.push(`${count} ${unit}`);
    seconds -= count * size;
    if (parts.length === 2 || seconds === 0) break;
  }
  return parts.join(" ");
}

/** How long ago a time of the API was, as `5 min ago`. */
export function formatAgo(time: string, nowMs: number): string {
  const spanMs = nowMs - Date.parse(time);
  if (spanMs < 5_000) return STRINGS.common.justNow;
  return STRINGS.common.ago(formatSpan(spanMs).split(" ").slice(0, 2).join(" "));
}

/** A time of the API in the reader's zone, to the second. */
export function formatTime(time: string): string {
  const at = new Date(time);
  const two = (part: number) => String(part).padStart(2, "0");
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return `${day} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

/** Codes of terminals, for colours and the cursor. */
const ANSI = new RegExp(`${String.fromCharCode(27)}\\[[0-9;?]*[ -/]*[@-~]`, "g");

/** Output of a program without the codes that colour terminals. */
export function withoutColours(text: string): string {
  return text.includes("\u001b") ? text.replace(ANSI, "") : text;
}
