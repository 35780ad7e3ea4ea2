/**
 * Ids of Nest's parts. The package keeps random numbers between its calls: those that one simulated
 * process draws would become ids of the next, also of the next seed, and could meet twice in one.
 */
let count = 0;

export function uid(length = 11): string {
  return String(++count).padStart(length, "0");
}
