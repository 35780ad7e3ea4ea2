import { AppError } from "../errors.ts";
import { isHostPort, MAX_PORT } from "./network-address.ts";

/**
 * Throws `invalid_value` for an invalid master name, which is part of file names and certificates.
 */
export function checkMemberName(name: string): void {
  if (/^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$/.test(name)) return;
  const message = `"${name}" is not a name of a master: give 1 to 63 letters, digits, ".", "_" or "-".`;
  throw new AppError("invalid_value", message);
}

/** Throws `invalid_value` for an address that other masters could not reach. */
export function checkMemberAddress(address: string): void {
  if (isHostPort(address)) return;
  const message = `--address takes HOST:PORT with a port from 1 to ${MAX_PORT}, not "${address}".`;
  throw new AppError("invalid_value", message);
}
