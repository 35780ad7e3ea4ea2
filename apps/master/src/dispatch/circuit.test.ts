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
