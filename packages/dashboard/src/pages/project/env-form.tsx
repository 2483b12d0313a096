/** The form that sets a variable or a secret of a project. */
import { useState } from 'react';
import { useApiMutation } from '../../api/mutations.ts';
import { Command } from '../../parts/command.tsx';
import { Conflict } from '../../parts/conflict.tsx';
import { useProjectReasons } from '../../parts/permissions.ts';
import { fieldErrors, FormProblem } from '../../parts/problem.tsx';
import { looksSecret } from '../../parts/secret-name.ts';
import type { TaggedProject } from '../../parts/tagged-project.ts';
import { Button } from '../../ui/controls.tsx';
import { Note } from '../../ui/feedback.tsx';
import { Checkbox } from '../../ui/fields.tsx';
import { Column, Columns, Panel, Row } from '../../ui/layout.tsx';
import { TextField } from '../../ui/text-field.tsx';
import { Code, Text } from '../../ui/text.tsx';

type Variables = Readonly<Record<string, string>>;
type Entry = {
  name: string;
  value: string;
  isSecret: boolean;
  /** The variables at the time when the person began to type; null if the form is empty. */
  env: Variables | null;
};
/** The empty form. It sets a secret by default, so that no value becomes readable by mistake. */
const EMPTY: Entry = { name: '', value: '', isSecret: true, env: null };

/** Returns whether another person changed this variable after this person began to type. */
const isChangedMeanwhile = (entry: Entry, env: Variables): boolean =>
  !entry.isSecret &&
  entry.env !== null &&
  env[entry.name] !== entry.env[entry.name] &&
  env[entry.name] !== entry.value;

function missingText(entry: Entry, isConflict: boolean): string | null {
  if (entry.name === '') return 'it needs a name';
  return isConflict ? 'choose between their value and yours first' : null;
}

export function EnvForm({ tagged: { project, headers } }: { tagged: TaggedProject }) {
  const [entry, setEntry] = useState(EMPTY);
  const env = project.env ?? {};
  const type = (typed: Partial<Entry>): void =>
    setEntry({ ...entry, env: entry.env ?? env, ...typed });
  const clear = (): void => setEntry(EMPTY);
  const putEnv = useApiMutation('putEnv', clear);
  const putSecret = useApiMutation('putSecret', clear);
  const error = putEnv.error ?? putSecret.error;
  const fields = fieldErrors(error);
  const isConflict = isChangedMeanwhile(entry, env);
  const reason = useProjectReasons(project)('set_env') ?? missingText(entry, isConflict);
  const { name, value, isSecret } = entry;
  const save = (): void => {
    putEnv.reset();
    putSecret.reset();
    const input = { params: { id: project.id, name }, body: { value } };
    if (isSecret) void putSecret.run(input);
    else void putEnv.run({ ...input, ...headers });
  };
  return (
    <Panel title="Set a variable or a secret" id="set">
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (reason === null) save();
        }}
      >
        <Column gap="sm">
          <Columns most={2}>
            <TextField
              label="Name"
              value={name}
              onChange={(typed) => type({ name: typed })}
              mono
              error={fields['name'] ?? null}
            />
            <TextField
              label="Value"
              value={value}
              onChange={(typed) => type({ value: typed })}
              secret={isSecret}
              mono
              error={fields['value'] ?? null}
            />
          </Columns>
          <Checkbox
            label="Secret: nobody can read the value again"
            value={isSecret}
            onChange={(next) => setEntry({ ...entry, isSecret: next })}
          />
          <ReadableSecretNote entry={entry} />
          {isConflict ? (
            <VariableConflict
              entry={entry}
              theirs={env[name]}
              onKeep={() => setEntry({ ...entry, env })}
              onTake={clear}
            />
          ) : (
            <FormProblem error={error} what="Saving" fields={['name', 'value']} />
          )}
          <Row>
            <Button type="submit" look="main" reason={reason} busy={putEnv.busy || putSecret.busy}>
              Save
            </Button>
            <Command
              words={[
                isSecret ? 'secret' : 'env',
                'set',
                name === '' ? 'NAME' : name,
                '--project',
                project.name,
              ]}
            />
          </Row>
        </Column>
      </form>
    </Panel>
  );
}

/** Warns before a secret is stored as a variable that everybody in the project can read. */
function ReadableSecretNote({ entry: { name, value, isSecret } }: { entry: Entry }) {
  if (isSecret || !looksSecret(name, value)) return null;
  return (
    <Note tone="warn" live>
      {name === '' ? 'The value' : name} looks like a secret. Everybody who may change the project
      can read a variable; choose Secret to hide it.
    </Note>
  );
}

type VariableConflictProps = {
  entry: Entry;
  theirs: string | undefined;
  onKeep: () => void;
  onTake: () => void;
};
const VariableConflict = ({ entry, theirs, ...choice }: VariableConflictProps) => (
  <Conflict
    title={`Somebody else ${theirs === undefined ? 'removed' : 'changed'} ${entry.name} meanwhile`}
    keep="Replace theirs with mine"
    {...choice}
  >
    <Text>
      {theirs === undefined ? (
        'theirs: no value'
      ) : (
        <>
          theirs <Code>{theirs}</Code>
        </>
      )}
      , yours <Code>{entry.value}</Code>
    </Text>
  </Conflict>
);
