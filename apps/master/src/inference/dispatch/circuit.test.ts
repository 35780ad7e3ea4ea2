import { expect, test } from "vitest";
import { Circuit } from "./circuit.ts";

const failed = (circuit: Circuit, nowMs: number) => {
  circuit.onSent();
  circuit.onFailure(nowMs);
};

test("circuit: three failures in a row open it until a probe succeeds", () => {
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

test("circuit: a failed probe doubles the time until the next", () => {
  const circuit = new Circuit(() => 1);
  for (let count = 0; count < 3; count += 1) failed(circuit, 0);
  failed(circuit, 1_000);
  expect(circuit.allows(2_999)).toBe(false);
  expect(circuit.allows(3_000)).toBe(true);
});

test("circuit: an answer that starts and then fails is no success", () => {
  const circuit = new Circuit(() => 1);
  for (let count = 0; count < 3; count += 1) {
    circuit.onSent();
    circuit.onStarted();
    circuit.onFailure(0);
  }
  expect(circuit.allows(0)).toBe(false);
});

test("circuit: a complete answer resets the count of failures", () => {
  const circuit = new Circuit(() => 1);
  failed(circuit, 0);
  failed(circuit, 0);
  circuit.onSuccess();
  failed(circuit, 0);
  expect(circuit.allows(0)).toBe(true);
});

test("circuit: a cancelled probe lets the next request probe", () => {
  const circuit = new Circuit(() => 1);
  for (let count = 0; count < 3; count += 1) failed(circuit, 0);
  circuit.onSent();
  circuit.onNeutral();
  expect(circuit.allows(1_000)).toBe(true);
});

test("circuit: says when it may be probed, and 0 while it is closed", () => {
  const circuit = new Circuit(() => 1);
  failed(circuit, 500);
  failed(circuit, 500);
  expect(circuit.opensAtMs).toBe(0);
  failed(circuit, 500);
  expect(circuit.opensAtMs).toBe(1_500);
  circuit.onSuccess();
  expect(circuit.opensAtMs).toBe(0);
});

test("circuit: a success resets the backoff, whose maximum is 30 s", () => {
  const circuit = new Circuit(() => 1);
  for (let count = 0; count < 20; count += 1) failed(circuit, 0);
  expect(circuit.opensAtMs).toBe(30_000);
  circuit.onSuccess();
  for (let count = 0; count < 3; count += 1) failed(circuit, 0);
  expect(circuit.opensAtMs).toBe(1_000);
});

test("circuit: a request sent before the failures is no probe", () => {
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

test("circuit: requests while it is closed leave no probe behind", () => {
  const circuit = new Circuit(() => 1);
  failed(circuit, 0);
  failed(circuit, 0);
  circuit.onFailure(0);
  expect(circuit.allows(1_000)).toBe(true);
});
