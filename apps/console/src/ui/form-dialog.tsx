import type { ReactNode } from "react";
import { STRINGS } from "../strings.ts";
import { ActionDialog } from "./action-dialog.tsx";

interface FormDialogOptions {
  /** The label of the button that opens it. */
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
  return (
    <ActionDialog
      label={label}
      variant={isPrimary ? "primary" : undefined}
      title={title}
      close={STRINGS.common.close}
      submit={submit}
      submitVariant="primary"
      act={act}
    >
      {children}
    </ActionDialog>
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
