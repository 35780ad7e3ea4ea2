import type { JobSpec } from "@heddle/contracts/api/job-spec";
import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { useSession } from "../session/session.ts";

/** Submits a spec and opens the page of its job. */
export function useSubmit() {
  const { heddle } = useSession();
  const navigate = useNavigate();
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  const submit = async (spec: JobSpec) => {
    setBusy(true);
    setError(undefined);
    try {
      const { job_id } = await heddle.jobs.create(spec);
      await navigate({ to: "/jobs/$id", params: { id: job_id }, search: { part: undefined } });
    } catch (thrown) {
      setError(thrown);
      setBusy(false);
    }
  };
  return { submit, isBusy, error };
}
