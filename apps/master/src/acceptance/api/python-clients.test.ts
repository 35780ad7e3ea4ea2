// holds: api-openai-python

import { expect, it } from "vitest";
import { ProcessCluster } from "../../../test/process-cluster.ts";
import { hasPackages, PYTHON, runPython } from "../../../test/python/run-python.ts";

/** A cold start imports hundreds of modules. */
const TIMEOUT_MS = 180_000;

const found = hasPackages("openai, pydantic", "openai, openai-agents, instructor and anthropic");

const weather = { city: expect.stringMatching(/^(Paris|Rome)$/), sunny: expect.any(Boolean) };

it.skipIf(!found)(
  "python clients: tools, structured output, responses, agents, embeddings",
  { timeout: 2 * TIMEOUT_MS },
  async () => {
    const cluster = await ProcessCluster.start();
    try {
      const met = await runPython(cluster, "python-clients.py", TIMEOUT_MS);
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
        batched: ["completed", ["0", "1"]],
      });
      const missing = met["missing"] as string[];
      if (missing.length > 0) {
        process.stdout.write(`skipped: ${PYTHON} has no package ${missing.join(", ")}.\n`);
      }
      if (!missing.includes("instructor")) {
        expect(met["instructor"]).toEqual({ TOOLS: weather, JSON_SCHEMA: weather });
      }
      if (!missing.includes("openai-agents")) {
        expect(met["openai-agents"]).toMatchObject({
          chat: weather,
          chat_called: true,
          responses: weather,
          responses_called: true,
        });
      }
      if (!missing.includes("anthropic")) {
        expect(met["anthropic"]).toMatchObject({ called: weather });
      }
    } finally {
      await cluster.close();
    }
  },
);
