/** The highest port that there is. */
export const MAX_PORT = 65_535;

/** Whether the text is HOST:PORT that can be dialled: port 0 is none, and an IPv6 host is in brackets. */
export function isHostPort(text: string): boolean {
  const [, port] = /^(?:\[[0-9a-f:]+\]|[^\s:/=,]+):(\d{1,5})$/i.exec(text) ?? [];
  return Number(port) >= 1 && Number(port) <= MAX_PORT;
}

/** Splits HOST:PORT; the host comes without the brackets of IPv6. */
export function splitHostPort(address: string): [host: string, port: string] {
  const at = address.lastIndexOf(":");
  return [address.slice(0, at).replace(/^\[|\]$/g, ""), address.slice(at + 1)];
}

/** Whether what listens at the host is reached from its own machine alone. */
export function isLoopback(host: string): boolean {
  return host === "localhost" || host === "::1" || /^127(\.\d{1,3}){3}$/.test(host);
}
