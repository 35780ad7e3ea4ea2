import type { Heddle } from "@heddle/client/heddle";
import type { LogEvent } from "@heddle/contracts/api/events/log";
import { useInfiniteQuery, useMutation } from "@tanstack/react-query";
import { useCallback, useMemo } from "react";
import { useSession } from "../session/session.ts";
import { STRINGS } from "../strings.ts";
import { formatCount, formatTime } from "../ui/format.ts";
import { Waiting } from "../ui/parts.tsx";
import { type TableColumn, VirtualTable } from "../ui/virtual-table.tsx";
import { canProve, proveEntry } from "./log-proof.ts";

const text = STRINGS.eventLog;
const PAGE_EVENTS = 200;

const COLUMNS: readonly TableColumn<LogEvent>[] = [
  { title: text.sequence, width: "6rem", isNumber: true, cell: ({ sequence }) => sequence },
  {
    title: STRINGS.common.time,
    width: "minmax(13rem, 1fr)",
    cell: ({ time }) => <time dateTime={time}>{formatTime(time)}</time>,
  },
  { title: STRINGS.common.kind, width: "minmax(12rem, 1.5fr)", cell: ({ type }) => type },
  { title: text.subject, width: "minmax(12rem, 2fr)", cell: ({ subject }) => subject },
  { title: text.result, width: "6rem", cell: ({ result }) => result },
  { title: text.user, width: "minmax(8rem, 1fr)", cell: ({ userid }) => userid },
  {
    title: text.proof,
    width: "minmax(15rem, 1.5fr)",
    cell: ({ sequence }) => <ProofCell key={sequence} sequence={sequence} />,
  },
];

/** The append-only log, the newest event first; the browser checks the proof of each that is asked for. */
export function LogEvents() {
  const { heddle } = useSession();
  const { data, error, fetchNextPage, hasNextPage, isFetching } = useInfiniteQuery({
    queryKey: ["event-log"],
    queryFn: ({ signal, pageParam }) =>
      heddle.events.query({ order: "desc", limit: PAGE_EVENTS, signal }).page(pageParam),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: ({ next_cursor }) => next_cursor ?? undefined,
  });
  const rows = useMemo(() => data?.pages.flatMap((page) => page.data), [data]);
  const more = useCallback(() => {
    if (hasNextPage && !isFetching) void fetchNextPage();
  }, [fetchNextPage, hasNextPage, isFetching]);
  if (!rows) return <Waiting error={error} />;
  return (
    <>
      <p className="muted">{canProve() ? text.about : text.insecure}</p>
      <VirtualTable
        label={text.table}
        columns={COLUMNS}
        rows={rows}
        keyOf={({ sequence }) => sequence}
        empty={STRINGS.eventsPage.empty}
        onEnd={more}
      />
    </>
  );
}

function ProofCell({ sequence }: { readonly sequence: string }) {
  const { heddle } = useSession();
  const { data, error, isPending, mutate } = useMutation({
    mutationFn: () => proved(heddle, sequence),
  });
  if (!canProve()) return null;
  if (data) {
    const { size, signer } = data;
    return (
      <span className="badge badge-good" title={text.signer(signer)}>
        {text.proved(formatCount(size))}
      </span>
    );
  }
  if (error) {
    return (
      <span className="badge badge-bad" role="alert" title={error.message}>
        {text.notProved(error.message)}
      </span>
    );
  }
  return (
    <button
      type="button"
      aria-label={text.checkOf(sequence)}
      disabled={isPending}
      onClick={() => mutate()}
    >
      {isPending ? STRINGS.common.loading : text.check}
    </button>
  );
}

async function proved(heddle: Heddle, sequence: string) {
  const [keys, bytes, proof] = await Promise.all([
    heddle.events.keys(),
    heddle.events.entry(sequence),
    heddle.events.proof(sequence),
  ]);
  return proveEntry({ sequence, bytes, proof }, keys);
}
