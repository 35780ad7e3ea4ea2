import { expect, test } from "vitest";
import type { JobRecord } from "../records/records.ts";
import { SubmissionOrder } from "./submission-order.ts";

const job = (submittedIndex: number) => ({ id: `j${submittedIndex}`, submittedIndex }) as JobRecord;

function orderOf(...indexes: readonly number[]): SubmissionOrder {
  const order = new SubmissionOrder();
  for (const index of indexes) order.add(job(index));
  return order;
}

test("submission order: newest first, before an index, whatever was added first", () => {
  const order = orderOf(2, 9, 4, 7);
  expect([...order.newestBefore()]).toEqual(["j9", "j7", "j4", "j2"]);
  expect([...order.newestBefore(7)]).toEqual(["j4", "j2"]);
  expect([...order.newestBefore(8)]).toEqual(["j7", "j4", "j2"]);
  expect([...order.newestBefore(1)]).toEqual([]);
});

test("submission order: jobs that come and go during a read move no other job", () => {
  const order = orderOf(1, 2, 3, 4, 5, 6);
  const read: string[] = [];
  for (const id of order.newestBefore()) {
    read.push(id);
    if (id === "j5") {
      order.add(job(7));
      for (const gone of [5, 2, 1]) order.remove(job(gone));
    }
  }
  expect(read).toEqual(["j6", "j5", "j4", "j3"]);
  expect([...order.newestBefore()]).toEqual(["j7", "j6", "j4", "j3"]);
});
