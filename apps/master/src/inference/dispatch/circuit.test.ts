import { expect, test } from "vitest";
import { Circuit } from "./circuit.ts";

const failed = (circuit: Circuit, nowMs: number) => {
  circuit.onSent();
  circuit.onFailure(nowMs);
};

test("three failures in a row take a replica out until a probe after its rest succeeds", () => {
  const circuit = new Circuit(() => 1);
  failed(circuit, 0);
  failed(circuit, 0);
  expect(circuit.allows(0)).toBe(true);
  failed(circuit, 0);
  expect(circuit.allows(999)).toBe(false);
  expect(circuit.allows(1_000)).toBe(true);
  circuit.onSent();
  expect(circuit.allows(1_000)).toBe(false);
  circuit.onStarted();
  circuit.onSuccess();
  expect(circuit.allows(1_000)).toBe(true);
});

test("a probe that fails doubles the rest", () => {
  const circuit = new Circuit(() => 1);
  for (let count = 0; count < 3; count += 1) failed(circuit, 0);
  failed(circuit, 1_000);
  expect(circuit.allows(2_999)).toBe(false);
  expect(circuit.allows(3_000)).toBe(true);
});

test("answers that begin and then fail are no success", () => {
  const circuit = new Circuit(() => 1);
  for (let count = 0; count < 3; count += 1) {
    circuit.onSent();
    circuit.onStarted();
    circuit.onFailure(0);
  }
  expect(circuit.allows(0)).toBe(false);
});

test("a complete answer between failures starts the count anew", () => {
  const circuit = new Circuit(() => 1);
  failed(circuit, 0);
  failed(circuit, 0);
  circuit.onSuccess();
  failed(circuit, 0);
  expect(circuit.allows(0)).toBe(true);
});

test("a cancelled probe lets the next request probe", () => {
  const circuit = new Circuit(() => 1);
  for (let count = 0; count < 3; count += 1) failed(circuit, 0);
  circuit.onSent();
  circuit.onNeutral();
  expect(circuit.allows(1_000)).toBe(true);
});

test("circuit: tells when it may be probed, and 0 while the replica is in", () => {
  const circuit = new Circuit(() => 1);
  failed(circuit, 500);
  failed(circuit, 500);
  expect(circuit.opensAtMs).toBe(0);
  failed(circuit, 500);
  expect(circuit.opensAtMs).toBe(1_500);
  circuit.onSuccess();
  expect(circuit.opensAtMs).toBe(0);
});

test("circuit: a success makes the next rest the first again; rests end at 30 s", () => {
  const circuit = new Circuit(() => 1);
  for (let count = 0; count < 20; count += 1) failed(circuit, 0);
  expect(circuit.opensAtMs).toBe(30_000);
  circuit.onSuccess();
  for (let count = 0; count < 3; count += 1) failed(circuit, 0);
  expect(circuit.opensAtMs).toBe(1_000);
});

test("circuit: a request that was sent before the failures is no probe", () => {
  const circuit = new Circuit(() => 1);
  circuit.onSent();
  for (let count = 0; count < 3; count += 1) circuit.onFailure(0);
  expect(circuit.allows(1_000)).toBe(true);
  circuit.onSent();
  circuit.onStarted();
  expect(circuit.allows(1_000)).toBe(true);
  circuit.onSent();
  circuit.onFailure(1_000);
  expect(circuit.allows(3_000)).toBe(true);
});

test("circuit: requests of a replica that is in leave no probe behind", () => {
  const circuit = new Circuit(() => 1);
  failed(circuit, 0);
  failed(circuit, 0);
  circuit.onFailure(0);
  expect(circuit.allows(1_000)).toBe(true);
});
