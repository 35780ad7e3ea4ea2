// holds: api-openai-python

import { execFile, spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, it } from "vitest";
import { ProcessCluster, TINY } from "../../../test/process-cluster.ts";

const SCRIPT = fileURLToPath(new URL("../../../test/openai-sdk.py", import.meta.url));

const python = process.env["HEDDLE_PYTHON"] ?? "python3";
const found = spawnSync(python, ["-c", "import openai"], { stdio: "ignore" }).status === 0;
if (!found) {
  process.stdout.write(
    `skipped: ${python} has no package openai. Set HEDDLE_PYTHON to a Python that has it to test the official Python client.\n`,
  );
}

it.skipIf(!found)(
  "the official Python client streams, answers, lists, and raises typed errors",
  async () => {
    const cluster = await ProcessCluster.start();
    try {
      const { stdout } = await promisify(execFile)(python, [SCRIPT, TINY], {
        env: {
          ...process.env,
          OPENAI_BASE_URL: `${cluster.url}/api/v1`,
          OPENAI_API_KEY: cluster.adminKey,
        },
        timeout: 25_000,
      });
      const met = JSON.parse(stdout) as Record<string, unknown>;
      expect(met).toMatchObject({
        streamed: met["text"],
        finish: "length",
        streamed_usage: met["usage"],
        errors: {
          key: ["AuthenticationError", 401, "invalid_api_key", null],
          model: ["NotFoundError", 404, "model_not_found", "model"],
          type: ["BadRequestError", 400, expect.any(String), "temperature"],
          unsupported: ["BadRequestError", 400, "unsupported_parameter", "store"],
          prompt: ["BadRequestError", 400, "context_length_exceeded", expect.anything()],
        },
      });
      expect(met["models"]).toHaveLength(5);
      expect(met["text"]).not.toBe("");
    } finally {
      await cluster.close();
    }
  },
);
