// holds: api-openai-python

import { execFile, spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, it } from "vitest";
import { ProcessCluster, TINY } from "../../../test/process-cluster.ts";

const SCRIPT = fileURLToPath(new URL("../../../test/python-clients.py", import.meta.url));
/** A cold start imports hundreds of modules. */
const TIMEOUT_MS = 180_000;

const python = process.env["HEDDLE_PYTHON"] ?? "python3";
const found =
  spawnSync(python, ["-c", "import openai, pydantic"], { stdio: "ignore" }).status === 0;
if (!found) {
  process.stdout.write(
    `skipped: ${python} has no package openai. Set HEDDLE_PYTHON to a Python that has openai, openai-agents, instructor and anthropic to test them.\n`,
  );
}

const weather = { city: expect.stringMatching(/^(Paris|Rome)$/), sunny: expect.any(Boolean) };

it.skipIf(!found)(
  "python clients: tools, structured output, responses, agents, embeddings",
  { timeout: 2 * TIMEOUT_MS },
  async () => {
    const cluster = await ProcessCluster.start();
    try {
      const { stdout } = await promisify(execFile)(python, [SCRIPT, TINY], {
        env: {
          ...process.env,
          OPENAI_BASE_URL: `${cluster.url}/api/v1`,
          OPENAI_API_KEY: cluster.adminKey,
        },
        timeout: TIMEOUT_MS,
      });
      const met = JSON.parse(stdout) as Record<string, unknown> & { missing: string[] };
      expect(met["openai"]).toEqual({
        parsed: weather,
        called: weather,
        streamed: weather,
        chained: true,
        events: ["response.created", expect.stringMatching(/^response\.(completed|incomplete)$/)],
        shaped: weather,
        embedded: [2, true],
        completed: "text_completion",
        moderated: true,
      });
      const { missing } = met;
      if (missing.length > 0) {
        process.stdout.write(`skipped: ${python} has no package ${missing.join(", ")}.\n`);
      }
      if (!missing.includes("instructor")) {
        expect(met["instructor"]).toEqual({ TOOLS: weather, JSON_SCHEMA: weather });
      }
      if (!missing.includes("openai-agents")) {
        expect(met["openai-agents"]).toMatchObject({ chat: weather, responses: weather });
      }
      if (!missing.includes("anthropic")) {
        expect(met["anthropic"]).toMatchObject({ called: weather });
      }
    } finally {
      await cluster.close();
    }
  },
);
