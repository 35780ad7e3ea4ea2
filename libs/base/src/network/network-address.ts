/** The highest port number. */
export const MAX_PORT = 65_535;

/**
 * Whether the text is a HOST:PORT to connect to: port 0 is invalid, and an IPv6 host is in
 * brackets.
 */
export function isHostPort(text: string): boolean {
  const [, port] = /^(?:\[[0-9a-f:]+\]|[^\s:/=,]+):(\d{1,5})$/i.exec(text) ?? [];
  return Number(port) >= 1 && Number(port) <= MAX_PORT;
}

/** Splits HOST:PORT; the host has no IPv6 brackets. */
export function splitHostPort(address: string): [host: string, port: string] {
  const at = address.lastIndexOf(":");
  return [address.slice(0, at).replace(/^\[|\]$/g, ""), address.slice(at + 1)];
}

/** Whether a listener on the host is reachable from its own machine alone. */
export function isLoopback(host: string): boolean {
  return host === "localhost" || host === "::1" || /^127(\.\d{1,3}){3}$/.test(host);
}
