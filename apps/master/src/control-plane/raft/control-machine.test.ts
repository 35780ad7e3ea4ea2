import { SecretKeys, sealedBy } from "@heddle/base/secret-keys";
import { SEALED } from "@heddle/control/cluster-version";
import type { HashedMap } from "@heddle/control/hashed-map";
import type { LogCommand } from "@heddle/control/replicated-control";
import type { ApiKeyRecord } from "@heddle/control/state";
import { expect, test } from "vitest";
import { ControlMachine } from "./control-machine.ts";

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
    data: machine.encode(createKey(from + at)),
  }));
  for (const reply of await machine.apply(commands)) expect(reply).toMatchObject({ ok: true });
}

async function* all(pieces: readonly Uint8Array[]): AsyncGenerator<Uint8Array, void> {
  yield* pieces;
}

// holds: state-snapshot-turns
test("snapshot: has the state of its call, also when commands apply between its pieces", async () => {
  const machine = new ControlMachine();
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
  const restored = new ControlMachine();
  await restored.restore(all(pieces));
  expect(restored.control.hash).toBe(hash);
  expect(restored.control.state.keys.size).toBe(KEYS);
});

// holds: state-snapshot-turns
test("snapshot: of a state of any size, only one piece's records are copied at a time", async () => {
  const records = 20_000;
  const machine = new ControlMachine();
  const { keys } = machine.control.state;
  await create(machine, 1, 1);
  const [sample] = [...keys.values()] as [ApiKeyRecord];
  let made = 0;
  const toJSON = () => {
    made++;
    return sample;
  };
  for (let i = 0; i < records; i++) keys.set(`key${i}`, { ...sample, toJSON } as ApiKeyRecord);
  const walks = countWalks(keys);
  made = 0;
  const snapshot = machine.snapshot();
  expect({ made, walks: walks() }).toEqual({ made: 0, walks: 0 });
  const perPiece = Math.ceil(MAX_PIECE_BYTES / JSON.stringify(sample).length);
  let pieces = 0;
  for (const _ of snapshot) {
    expect(made).toBeLessThanOrEqual(perPiece);
    made = 0;
    pieces++;
    // Changed in the middle of it: what was is kept for this record alone, and nothing is walked again.
    keys.set(`key${records - pieces}`, sample);
    expect(walks()).toBe(1);
  }
  expect(pieces).toBeGreaterThan(50);
  expect(frozen(keys)).toBe(0);
});

test("snapshot: one that is given up, begun or not, keeps nothing of the old state", async () => {
  const machine = new ControlMachine();
  await create(machine, 1, KEYS);
  const { keys } = machine.control.state;
  const [unread, begun] = [machine.snapshot(), machine.snapshot()].map((snapshot) =>
    snapshot[Symbol.iterator](),
  ) as [Iterator<Uint8Array>, Iterator<Uint8Array>];
  expect(begun.next().done).toBe(false);
  expect(frozen(keys)).toBe(2);
  unread.return?.();
  begun.return?.();
  expect(frozen(keys)).toBe(0);
});

function frozen(map: Map<string, unknown>): number {
  return (map as HashedMap<unknown>).frozen;
}

/** Counts the walks over all entries, keys or values of the map. */
function countWalks(map: Map<string, unknown>): () => number {
  let walks = 0;
  const ways = ["keys", "values", "entries", "forEach", Symbol.iterator] as const;
  for (const way of ways) {
    const real = map[way] as (...words: unknown[]) => unknown;
    const counted = (...words: unknown[]): unknown => {
      walks++;
      return real.apply(map, words);
    };
    Object.defineProperty(map, way, { value: counted });
  }
  return () => walks;
}

test("sealed: entries and snapshots open only with the key, pieces only in their order", async () => {
  const keys = new SecretKeys([Buffer.alloc(32, 7)]);
  const [id = ""] = keys.ids;
  const machine = new ControlMachine(undefined, { keys });
  const entries: LogCommand[] = [
    { type: "version.raise", atMs: 0, version: SEALED },
    { type: "secrets.key", atMs: 0, id },
    createKey(1),
  ];
  const log: Uint8Array[] = [];
  for (const entry of entries) {
    const data = machine.encode(entry);
    log.push(data);
    await machine.apply([{ index: log.length, data }]);
  }
  expect(log.map((data) => sealedBy(data))).toEqual([undefined, undefined, id]);
  await create(machine, 4, KEYS);
  const pieces = [...machine.snapshot()];
  expect(pieces.every((piece) => sealedBy(piece) === id)).toBe(true);
  const restored = new ControlMachine(undefined, { keys });
  await restored.restore(all(pieces));
  expect(restored.control.hash).toBe(machine.control.hash);
  const [first, second, ...rest] = pieces as [Uint8Array, Uint8Array, ...Uint8Array[]];
  await expect(restored.restore(all([second, first, ...rest]))).rejects.toThrow(
    /snapshot 0: it was/,
  );
  await expect(new ControlMachine().restore(all(pieces))).rejects.toThrow(/no key was given/);
  const last = [{ index: 1, data: log[2] as Uint8Array }];
  expect(() => new ControlMachine().apply(last)).toThrow(/no key was given/);
});
