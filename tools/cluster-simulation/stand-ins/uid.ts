/**
 * Ids of Nest's parts. The package keeps random numbers between its calls, so that an id could
 * depend on earlier processes and seeds, and occur twice in one process.
 */
let count = 0;

export function uid(length = 11): string {
  return String(++count).padStart(length, "0");
}
