// holds: train-gradients

import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";

test("onnxruntime: sends no telemetry and leaves no log of it", () => {
  const folder = mkdtempSync(join(tmpdir(), "heddle-onnx-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const url = new URL("../dist/onnx-backend.js", import.meta.url);
  const load = `await import(${JSON.stringify(url)}); process.stdout.write(process.env.ORT_DISABLE_TELEMETRY)`;
  const { ORT_DISABLE_TELEMETRY: _, NODE_COMPILE_CACHE: __, ...rest } = process.env;
  const env = { ...rest, TMPDIR: folder };
  const output = execFileSync(process.execPath, ["--input-type=module", "--eval", load], { env });
  expect(output.toString()).toBe("1");
  expect(readdirSync(folder)).toEqual([]);
});
