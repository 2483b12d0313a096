/**
 * Shows a server error once, beside the thing that failed: its sentence, its code, and the request
 * id for the log.
 */
import { messageOf } from '@berth/kit/message-of';
import { ApiError } from '@berth/wire/client';
import { isAway } from '../api/client.ts';
import { Button } from '../ui/controls.tsx';
import { Note, Spoken } from '../ui/feedback.tsx';
import { Row } from '../ui/layout.tsx';
import { Text } from '../ui/text.tsx';
import { labelOf } from './field-words.ts';

/** Returns the field without index or part: `projects` for `projects[1]`. */
const wholeOf = (field: string): string => field.split(/[.[]/, 1)[0] ?? field;
/** Describes an index: `[1]` is the second item of a list. */
const itemText = (rest: string): string =>
  rest.replace(/^\[(\d+)\]$/, (_all, index: string) => `item ${Number(index) + 1}:`);

/**
 * Returns the fields of a 422 or 409 error with the rule that each one breaks, so that a form shows
 * them at its fields. An error of `projects[1]` belongs to `projects`.
 */
export function fieldErrors(error: unknown): Readonly<Record<string, string>> {
  if (!(error instanceof ApiError)) return {};
  const messages: Record<string, string> = {};
  for (const { field, message } of error.problem?.errors ?? []) {
    const whole = wholeOf(field);
    messages[whole] ??=
      whole === field ? message : `${itemText(field.slice(whole.length))} ${message}`;
    messages[field] = message;
  }
  return messages;
}

/**
 * Returns the first error of a list that the form sends as a whole, such as `domains[2]` for
 * `domains`. Such a form has one field for the whole list.
 */
export const listError = (error: unknown, list: string) =>
  error instanceof ApiError
    ? error.problem?.errors?.find(({ field }) => field.startsWith(list))
    : undefined;

/**
 * Returns the part of an error that the form shows apart from its `fields`; null if all errors
 * belong to these fields.
 */
export function besideFields(
  error: unknown,
  fields: readonly string[],
): {
  /** Errors of other fields, if some belong to `fields`. Null: the form shows the whole problem. */
  rest: readonly string[] | null;
} | null {
  if (error === null || error === undefined) return null;
  const errors = error instanceof ApiError ? (error.problem?.errors ?? []) : [];
  const isAtField = ({ field }: { field: string }): boolean =>
    fields.includes(field) || fields.includes(wholeOf(field));
  const others = errors.filter((one) => !isAtField(one));
  if (errors.length > 0 && others.length === 0) return null;
  return {
    rest:
      others.length === errors.length
        ? null
        : others.map(({ field, message }) => `${labelOf(field)} ${message}`),
  };
}

/**
 * Shows the part of a form's error that no field shows. For errors at fields, announces only the
 * field names to screen readers.
 */
export function FormProblem({
  error,
  what,
  fields,
}: {
  error: unknown;
  what: string;
  fields: readonly string[];
}) {
  if (error === null || error === undefined) return null;
  const beside = besideFields(error, fields);
  if (beside === null) {
    const labels = new Set(Object.keys(fieldErrors(error)).map((name) => labelOf(wholeOf(name))));
    return (
      <Spoken>
        {what} failed: correct {[...labels].join(', ')}
      </Spoken>
    );
  }
  if (beside.rest === null) return <Problem error={error} what={what} />;
  return (
    <Note tone="bad" title={`${what} failed`} live>
      {beside.rest.map((text) => (
        <Text key={text}>{text}</Text>
      ))}
    </Note>
  );
}

/** Returns the error sentence for a dialog; null without an error. */
export const dialogError = (error: unknown): string | null =>
  error === null || error === undefined ? null : problemText(error);

/**
 * Describes the fields of a validation error, or of values that others have, with the labels of the
 * controls, which people know. Returns null for other errors: their own sentence says more.
 */
function fieldsText({ code, problem }: ApiError): string | null {
  const fields = problem?.errors ?? [];
  const [first] = fields;
  if (first === undefined) return null;
  if (code === 'validation')
    return `${fieldText(first)}${fields.length > 1 ? ` (and ${fields.length - 1} more)` : ''}`;
  return fields.every(({ rule }) => rule === 'taken') ? fields.map(fieldText).join('; ') : null;
}

function fieldText({ field, message }: { field: string; message: string }): string {
  const whole = wholeOf(field);
  return `${labelOf(whole)}${field.slice(whole.length)}: ${message}`;
}

const NO_ANSWER =
  'The control plane does not answer. Nothing was changed that Berth knows of; try again.';
const CHANGED_MEANWHILE =
  'Somebody else changed this meanwhile. Your text is still here; compare, then save again.';
export function problemText(error: unknown): string {
  if (isAway(error)) return NO_ANSWER;
  if (error instanceof ApiError) {
    if (error.code === 'changed_meanwhile') return CHANGED_MEANWHILE;
    return fieldsText(error) ?? error.message;
  }
  return messageOf(error);
}

type ProblemProps = {
  /** The error to show; null or undefined shows nothing. */
  error: unknown;
  /** The part that failed, as the subject of a sentence. */
  what: string;
  again?: () => void;
};
export function Problem({ error, what, again }: ProblemProps) {
  if (error === null || error === undefined) return null;
  const request = error instanceof ApiError ? error.problem?.request_id : undefined;
  return (
    <Note tone="bad" title={`${what} failed`} live>
      <Text>{problemText(error)}</Text>
      {error instanceof ApiError && (
        <Text size="xs" tone="quiet">
          {error.code}
          {request === undefined ? '' : ` · request ${request}`}
        </Text>
      )}
      {again !== undefined && (
        <Row>
          <Button size="xs" onClick={again}>
            Try again
          </Button>
        </Row>
      )}
    </Note>
  );
}
