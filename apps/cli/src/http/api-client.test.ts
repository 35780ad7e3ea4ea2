import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { freePort } from "@heddle/base/testing/free-ports";
import { afterEach, describe, expect, it } from "vitest";
import { ApiClient } from "./api-client.ts";

// One master that is gone or hangs, and another one that answers.

let servers: Server[] = [];
afterEach(() => {
  for (const server of servers) {
    server.closeAllConnections();
    server.close();
  }
  servers = [];
});

/** A master that answers each call with its name, or takes it and says nothing. */
async function master(name: string, answers: boolean): Promise<{ url: string; asked: string[] }> {
  const asked: string[] = [];
  const server = createServer(({ method, url }, response) => {
    asked.push(`${method} ${url}`);
    if (answers) response.end(JSON.stringify({ name }));
  });
  servers.push(server);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, asked };
}

function client(endpoint: string, ...others: string[]): ApiClient {
  return new ApiClient({ endpoint, others, apiKey: "k", endpointSource: "credentials file" });
}

it("a port that fetch refuses is said to be one, not a cluster that does not answer", async () => {
  const asking = client("http://127.0.0.1:6000").json("/read");
  await expect(asking).rejects.toThrow(/port, which the Fetch standard blocks/);
});

it("a call without a key says that the local cluster's is not for another one", async () => {
  const server = createServer((_request, response) => {
    response.writeHead(401, { "content-type": "application/json" });
    response.end('{"error":{"code":"invalid_api_key","message":"Send the header."}}');
  });
  servers.push(server);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const endpoint = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const asked = (apiKey: string | undefined) =>
    new ApiClient({ endpoint, apiKey, endpointSource: "HEDDLE_ENDPOINT" }).json("/read");
  await expect(asked(undefined)).rejects.toThrow(
    `for its own cluster alone, and ${endpoint} (from HEDDLE_ENDPOINT) is another`,
  );
  await expect(asked("k")).rejects.toThrow("Send the header.");
});

describe("a client that knows several masters", () => {
  it("asks the next where one is not there, for reads and for changes", async () => {
    const nobody = `http://127.0.0.1:${await freePort()}`;
    const good = await master("good", true);
    const asking = client(nobody, good.url);
    expect(await asking.json("/read")).toEqual({ name: "good" });
    expect(await asking.json("/change", { method: "POST", body: {} })).toEqual({ name: "good" });
    expect(good.asked).toEqual(["GET /read", "POST /change"]);
  });

  it("asks the next where one does not answer a read, and nobody else for a change", async () => {
    const hung = await master("hung", false);
    const good = await master("good", true);
    const asking = client(hung.url, good.url);
    expect(await asking.json("/read", { timeoutMs: 100 })).toEqual({ name: "good" });
    await expect(
      asking.json("/change", { method: "POST", body: {}, timeoutMs: 100 }),
    ).rejects.toMatchObject({ code: "deadline_exceeded" });
    expect(good.asked).toEqual(["GET /read"]);
  });

  it("asks the first alone where that answers, and names the last where none is there", async () => {
    const good = await master("good", true);
    const [one, two] = [await freePort(), await freePort()].map((at) => `http://127.0.0.1:${at}`);
    await expect(client(one as string, two as string).json("/read")).rejects.toThrow(
      `No answer from ${two} (ECONNREFUSED`,
    );
    expect(await client(good.url, one as string).json("/read")).toEqual({ name: "good" });
  });
});
