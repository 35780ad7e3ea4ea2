import { type GetRequest, getBytes, HttpConnection } from "../support/http-connection.ts";
import { type Summary, summarizeSamples } from "../support/statistics.ts";

// A program: calls one route in a closed loop and prints a GetResult.

export interface GetLoad extends GetRequest {
  readonly concurrency: number;
  readonly durationMs: number;
  /** That every answer has. */
  readonly expectedText: string;
}

export interface GetResult {
  readonly requests: number;
  readonly seconds: number;
  readonly latencyMs: Summary;
}

const load = JSON.parse(process.argv[2] ?? "{}") as GetLoad;
const request = getBytes(load);
const began = performance.now();
const latencies: number[] = [];
await Promise.all(Array.from({ length: load.concurrency }, client));
const seconds = (performance.now() - began) / 1_000;
const result: GetResult = {
  requests: latencies.length,
  seconds,
  latencyMs: summarizeSamples(latencies),
};
console.log(JSON.stringify(result));

async function client(): Promise<void> {
  const connection = new HttpConnection(load.origin);
  while (performance.now() - began < load.durationMs) {
    const sentAt = performance.now();
    await exchange(connection);
    latencies.push(performance.now() - sentAt);
  }
  connection.close();
}

function exchange(connection: HttpConnection): Promise<void> {
  let text = "";
  return new Promise((resolve, reject) => {
    connection.send(request, {
      body: (bytes) => {
        text += bytes.toString();
      },
      end: (status) => {
        if (status === 200 && text.includes(load.expectedText)) return resolve();
        reject(new Error(`${load.path} answered ${status}: ${text}`));
      },
      fail: reject,
    });
  });
}
