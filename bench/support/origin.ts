import type { Origin } from "./http-connection.ts";

export function originOf(url: string): Origin {
  const { protocol, hostname, port } = new URL(url);
  if (protocol !== "http:") throw new Error(`${url} must begin with http://`);
  return { host: hostname, port: Number(port || 80) };
}

/** Resolves when the URL answers with a status below 500. Rejects after the time is up. */
export async function waitForServer(url: string, timeoutMs: number): Promise<void> {
  const deadline = Date.now() + timeoutMs;
  for (;;) {
    const status = await fetch(url, { signal: AbortSignal.timeout(2_000) }).then(
      async (response) => {
        await response.arrayBuffer();
        return response.status;
      },
      () => 599,
    );
    if (status < 500) return;
    if (Date.now() > deadline) throw new Error(`${url} did not answer within ${timeoutMs} ms`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}
