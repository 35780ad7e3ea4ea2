import { type FormEvent, type ReactNode, useRef, useState } from "react";
import { STRINGS } from "../strings.ts";
import { ErrorNote } from "./error-note.tsx";

interface FormDialogOptions {
  /** Of the button that opens it. */
  readonly label: string;
  readonly title: string;
  readonly submit: string;
  readonly children: ReactNode;
  readonly isPrimary?: boolean;
  /** The dialog closes when it resolves, and shows why it rejects. */
  readonly act: (form: FormData) => Promise<unknown>;
}

/** A button that opens a form in a dialog. */
export function FormDialog({ label, title, submit, children, isPrimary, act }: FormDialogOptions) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [isOpen, setOpen] = useState(false);
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  const open = () => {
    setError(undefined);
    setOpen(true);
    dialog.current?.showModal();
  };
  const run = async (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    setBusy(true);
    setError(undefined);
    try {
      await act(form);
      dialog.current?.close();
    } catch (thrown) {
      setError(thrown);
    } finally {
      setBusy(false);
    }
  };
  return (
    <>
      <button type="button" className={isPrimary ? "primary" : undefined} onClick={open}>
        {label}
      </button>
      <dialog ref={dialog} aria-label={title} onClose={() => setOpen(false)}>
        {isOpen && (
          <form className="dialog" onSubmit={run}>
            <h2>{title}</h2>
            {children}
            {error !== undefined && <ErrorNote error={error} />}
            <div className="buttons">
              <button type="button" onClick={() => dialog.current?.close()}>
                {STRINGS.common.close}
              </button>
              <button type="submit" className="primary" disabled={isBusy}>
                {submit}
              </button>
            </div>
          </form>
        )}
      </dialog>
    </>
  );
}

/** A field of the form as text without spaces around it; undefined where it is empty. */
export function fieldText(form: FormData, name: string): string | undefined {
  const value = form.get(name);
  return typeof value === "string" && value.trim() !== "" ? value.trim() : undefined;
}

/** The same as a number. */
export function fieldNumber(form: FormData, name: string): number | undefined {
  const text = fieldText(form, name);
  return text === undefined ? undefined : Number(text);
}
