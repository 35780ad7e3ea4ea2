const MONTHS = [
  "January",
  "February",
  "March",
  "April",
  "May",
  "June",
  "July",
  "August",
  "September",
  "October",
  "November",
  "December",
];
const DAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/**
 * Python's `strftime` with English names, in UTC so that one prompt renders the same on every
 * machine. A directive that is not known stays as it is.
 */
export function strftime(date: Date, format: string): string {
  return format.replace(/%([-]?)([a-zA-Z%])/g, (whole, dash: string, directive: string) => {
    const text = field(date, directive);
    if (text === undefined) return whole;
    return dash === "-" ? text.replace(/^0+(?=\d)/, "") : text;
  });
}

function field(date: Date, directive: string): string | undefined {
  const month = MONTHS[date.getUTCMonth()] ?? "";
  const day = DAYS[date.getUTCDay()] ?? "";
  const fields: Record<string, () => string> = {
    Y: () => String(date.getUTCFullYear()),
    y: () => two(date.getUTCFullYear() % 100),
    m: () => two(date.getUTCMonth() + 1),
    d: () => two(date.getUTCDate()),
    B: () => month,
    b: () => month.slice(0, 3),
    A: () => day,
    a: () => day.slice(0, 3),
    H: () => two(date.getUTCHours()),
    I: () => two(((date.getUTCHours() + 11) % 12) + 1),
    M: () => two(date.getUTCMinutes()),
    S: () => two(date.getUTCSeconds()),
    p: () => (date.getUTCHours() < 12 ? "AM" : "PM"),
    "%": () => "%",
  };
  return Object.hasOwn(fields, directive) ? fields[directive]?.() : undefined;
}

function two(value: number): string {
  return String(value).padStart(2, "0");
}
