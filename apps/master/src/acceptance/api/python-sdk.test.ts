// holds: api-openai-python

import { expect, it } from "vitest";
import { ProcessCluster } from "../../../test/process-cluster.ts";
import { hasPackages, runPython } from "../../../test/python/run-python.ts";

it.skipIf(!hasPackages("openai"))(
  "Python client: the official one streams, answers, lists and raises typed errors",
  async () => {
    const cluster = await ProcessCluster.start();
    try {
      const met = await runPython(cluster, "openai-sdk.py", 90_000);
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

// holds: api-public-schema
it.skipIf(!hasPackages("openai, pydantic"))(
  "python types: every reply and stream event fits OpenAI's public schema",
  async () => {
    const cluster = await ProcessCluster.start();
    try {
      const { chat_events, response_events, ...rest } = await runPython(
        cluster,
        "public-schema.py",
        90_000,
      );
      expect(rest).toEqual({ chat_streams: 24, replies: 17, faults: [] });
      expect(chat_events).toBeGreaterThan(200);
      expect(response_events).toBeGreaterThan(50);
    } finally {
      await cluster.close();
    }
  },
);
