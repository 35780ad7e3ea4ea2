import type { Job } from "@heddle/contracts/api/job-replies";
import { useQueryClient } from "@tanstack/react-query";
import { isEndedState } from "../data/queries.ts";
import { useMay, useSession } from "../session/session.ts";
import { STRINGS } from "../strings.ts";
import { ConfirmButton } from "../ui/confirm-button.tsx";

const text = STRINGS.jobs;

/** Cancel, suspend and resume, each where the job's state and the key allow it. */
export function JobActions({ job: { id, name, state } }: { readonly job: Job }) {
  const { heddle } = useSession();
  const queries = useQueryClient();
  const mayChange = useMay("jobs:cancel");
  if (!mayChange || isEndedState(state) || state === "cancelling") return null;
  const refresh = () => queries.invalidateQueries({ queryKey: ["jobs"] });
  return (
    <>
      {state === "suspended" ? (
        <ConfirmButton
          label={text.resume}
          title={text.resumeTitle(name)}
          text={text.resumeText}
          confirm={text.resumeConfirm}
          act={() => heddle.jobs.resume(id).then(refresh)}
        />
      ) : (
        <ConfirmButton
          label={text.suspend}
          title={text.suspendTitle(name)}
          text={text.suspendText}
          confirm={text.suspendConfirm}
          act={() => heddle.jobs.suspend(id).then(refresh)}
        />
      )}
      <ConfirmButton
        label={text.cancel}
        title={text.cancelTitle(name)}
        text={text.cancelText}
        confirm={text.cancelConfirm}
        isDanger
        act={() => heddle.jobs.cancel(id).then(refresh)}
      />
    </>
  );
}
