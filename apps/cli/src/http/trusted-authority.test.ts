// holds: sec-tls-http

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type Server } from "node:https";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createOwnCertificate } from "@heddle/pki/certificate-authority";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { DrivenProcess } from "../testing/driven-process.ts";
import { MAIN } from "../testing/scripted-api.ts";

let folder: string;
let server: Server;
let file: string;

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "heddle-ca-"));
  const { certificate: cert, privateKey: key } = await createOwnCertificate(["localhost"]);
  file = join(folder, "ca.pem");
  writeFileSync(file, cert);
  server = createServer({ cert, key }, (_, response) => response.end('{"data": []}'));
  await new Promise<void>((resolve) => server.listen(0, "localhost", resolve));
});
afterAll(() => {
  server.close();
  rmSync(folder, { recursive: true });
});

async function models(args: readonly string[], env: NodeJS.ProcessEnv = {}) {
  const { port } = server.address() as AddressInfo;
  const endpoint = ["--endpoint", `https://localhost:${port}`, "--api-key", "k"];
  const command = [process.execPath, MAIN, ...endpoint, ...args, "models", "list"] as const;
  const ran = new DrivenProcess([...command], env);
  return { code: await ran.end(), stderr: ran.stderr };
}

describe("heddle --ca", () => {
  it("and HEDDLE_CA have a command trust the authority of the file", async () => {
    expect(await models(["--ca", file])).toMatchObject({ code: 0, stderr: "" });
    expect(await models([], { HEDDLE_CA: file })).toMatchObject({ code: 0, stderr: "" });
  });

  it("is needed for an authority of one's own; a wrong file is named", async () => {
    const without = await models([]);
    expect(without.code).toBe(7);
    expect(without.stderr).toMatch(/SELF_SIGNED|self-signed/);
    const wrong = join(folder, "wrong.pem");
    writeFileSync(wrong, "nothing");
    const refused = await models(["--ca", wrong]);
    expect(refused.code).not.toBe(0);
    expect(refused.stderr).toMatch(/--ca .*wrong\.pem holds no certificate/);
  });
});
