import type { LogCommand } from "@heddle/control/replicated-control";
import { expect, test } from "vitest";
import { ControlMachine, encodeLogCommand } from "./control-machine.ts";

const KEYS = 800;
/** What a piece may have at most: 64 KiB, and the line that goes over it. */
const MAX_PIECE_BYTES = 66 * 1024;

function createKey(number: number): LogCommand {
  const id = String(number).padStart(8, "k");
  const key = { id, name: "n".repeat(200), hash: "0".repeat(64), scopes: [], models: [] };
  const atMs = number;
  return {
    type: "control",
    command: { type: "key.create", atMs, key: { ...key, limits: {}, createdAtMs: atMs } },
  };
}

async function create(machine: ControlMachine, from: number, count: number): Promise<void> {
  const commands = Array.from({ length: count }, (_, at) => ({
    index: from + at,
    data: encodeLogCommand(createKey(from + at)),
  }));
  for (const reply of await machine.apply(commands)) expect(reply).toMatchObject({ ok: true });
}

async function* all(pieces: readonly Uint8Array[]): AsyncGenerator<Uint8Array, void> {
  yield* pieces;
}

test("a snapshot is of the moment of its call, though commands are applied between its small pieces", async () => {
  const machine = new ControlMachine(() => undefined);
  await create(machine, 1, KEYS);
  const { hash } = machine.control;
  const pieces: Uint8Array[] = [];
  let next = KEYS + 1;
  for (const piece of machine.snapshot()) {
    pieces.push(piece);
    expect(piece.byteLength).toBeLessThan(MAX_PIECE_BYTES);
    await create(machine, next++, 1);
  }
  expect(pieces.length).toBeGreaterThan(3);
  expect(machine.control.hash).not.toBe(hash);
  const restored = new ControlMachine(() => undefined);
  await restored.restore(all(pieces));
  expect(restored.control.hash).toBe(hash);
  expect(restored.control.state.keys.size).toBe(KEYS);
});
