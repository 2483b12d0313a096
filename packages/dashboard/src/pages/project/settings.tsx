/** The tab Settings of a project: its fields, the access to its repository, its deletion. */
import { defined } from '@berth/kit/defined';
import { ApiError } from '@berth/wire/client';
import type { Project } from '@berth/wire/project';
import { useNavigate } from '@tanstack/react-router';
import { useState } from 'react';
import { useProjectReasons } from '../../parts/permissions.ts';
import { useApiQueryWithTag } from '../../api/queries.ts';
import { Button } from '../../ui/controls.tsx';
import { NumberField, Select, Switch, TagsField, TextArea } from '../../ui/fields.tsx';
import { Note } from '../../ui/feedback.tsx';
import { Column, Columns, Panel, Row } from '../../ui/layout.tsx';
import { Confirm } from '../../ui/overlay.tsx';
import { TextField } from '../../ui/text-field.tsx';
import { Code, Text } from '../../ui/text.tsx';
import { useApiMutation } from '../../api/mutations.ts';
import { QueryBoundary } from '../../parts/query-boundary.tsx';
import { Command } from '../../parts/command.tsx';
import { Conflict } from '../../parts/conflict.tsx';
import { GitAccess } from './git-access.tsx';
import { labelOf } from '../../parts/field-words.ts';
import { dialogError, fieldErrors, FormProblem } from '../../parts/problem.tsx';
import {
  type Draft,
  draftOf,
  type FieldOfForm,
  fitsLines,
  FORM,
  type FormField,
  isEqual,
  pairsOf,
  pairsText,
  patchOf,
} from '../../parts/project-fields.ts';
import { LookStatus, useRepositoryLook } from '../../parts/repository.tsx';
import { looksSecret } from '../../parts/secret-name.ts';

export function Settings({ project }: { project: Project }) {
  const tagged = useApiQueryWithTag('getProject', { params: { id: project.id } });
  return (
    <QueryBoundary query={tagged} what="the settings">
      {({ answer, etag }) => <SettingsForm key={project.id} project={answer} etag={etag} />}
    </QueryBoundary>
  );
}

type ControlProps = {
  field: FieldOfForm;
  value: unknown;
  onChange: (value: unknown) => void;
  error: string | undefined;
  help?: string | undefined;
  suggestions?: readonly string[];
  onFocus?: () => void;
  onBlur?: () => void;
};
/** The control of one field, by its kind. */
function Control({ field, value, onChange, error, help = field.help, ...text }: ControlProps) {
  const common = { label: field.label, error, ...defined({ help }) };
  if (field.kind === 'switch')
    return <Switch {...common} value={value === true} onChange={onChange} />;
  if (field.kind === 'list')
    return <TagsField {...common} value={(value ?? []) as string[]} onChange={onChange} />;
  if (field.kind === 'choice')
    return (
      <Select
        {...common}
        value={typeof value === 'string' ? value : ''}
        onChange={(next) => onChange(next === '' ? null : next)}
        options={[...(field.nullable ? [''] : []), ...field.options].map((option) => ({
          value: option,
          label: option,
        }))}
      />
    );
  if (field.kind === 'pairs')
    return (
      <Pairs {...common} value={(value ?? {}) as Record<string, string>} onChange={onChange} />
    );
  if (field.kind === 'number') {
    const { scale } = field;
    const shown =
      typeof value === 'number'
        ? scale === undefined
          ? value
          : Number((value / scale.by).toFixed(scale.max))
        : null;
    return (
      <NumberField
        {...common}
        value={shown}
        {...(field.step === undefined ? {} : { step: field.step })}
        onChange={(next) =>
          onChange(
            next === null
              ? field.nullable
                ? null
                : 0
              : scale === undefined
                ? next
                : Math.round(next * scale.by),
          )
        }
      />
    );
  }
  return (
    <TextField
      {...common}
      {...text}
      mono
      value={typeof value === 'string' ? value : ''}
      onChange={(next) => onChange(next === '' && field.nullable ? null : next)}
    />
  );
}

type PairsProps = {
  label: string;
  help?: string;
  error: string | undefined;
  value: Record<string, string>;
  onChange: (value: unknown) => void;
};
function Pairs({ value, onChange, ...rest }: PairsProps) {
  const [typed, setTyped] = useState(pairsText(value));
  // Somebody else's value, which the person took.
  const text = isEqual(pairsOf(typed), value) ? typed : pairsText(value);
  if (!fitsLines(value))
    return (
      <Text tone="quiet">{`${rest.label}: a value has several lines; change it with berth project edit --build-arg.`}</Text>
    );
  const secret = Object.entries(value).find(([name, one]) => looksSecret(name, one));
  return (
    <>
      <TextArea
        {...rest}
        value={text}
        onChange={(next) => {
          setTyped(next);
          onChange(pairsOf(next));
        }}
      />
      {secret !== undefined && (
        <Note tone="warn" live>
          {`${secret[0]} looks like a secret. Everybody who gets the image can read a build ` +
            'argument; set a secret for the build instead.'}
        </Note>
      )}
    </>
  );
}

const SHOWN = FORM.map(({ name }) => name);
/** Short controls stand beside each other; the others need a line. */
const isShort = ({ kind }: FieldOfForm): boolean =>
  kind === 'text' || kind === 'number' || kind === 'choice';

function SettingsForm({ project, etag }: { project: Project; etag: string | null }) {
  const navigate = useNavigate();
  const reasonAgainst = useProjectReasons(project);
  const reason = reasonAgainst('edit_project');
  const [start, setStart] = useState({ draft: draftOf(project), etag, at: project.updated_at });
  const [draft, setDraft] = useState<Draft>(start.draft);
  const [deleting, setDeleting] = useState(false);
  const save = useApiMutation('patchProject', (answer) =>
    setStart({ draft: draftOf(answer), etag: null, at: answer.updated_at }),
  );
  const remove = useApiMutation('deleteProject', () => void navigate({ to: '/projects' }));
  const errors = fieldErrors(save.error);
  const names = FORM.map(({ name }) => name);
  const changed = names.filter((name) => !isEqual(draft[name], start.draft[name]));
  const others = names.filter(
    (name) =>
      // Right after the own change, the page has the project of before.
      project.updated_at >= start.at &&
      !isEqual(project[name], start.draft[name]) &&
      !isEqual(project[name], draft[name]),
  );
  // If somebody else changed only what the form does not show, the present version is the one that
  // the person sees.
  const tag = others.length === 0 ? etag : (start.etag ?? etag);
  const isTold =
    others.length > 0 && save.error instanceof ApiError && save.error.code === 'changed_meanwhile';
  /** Continues from the present version of the project. */
  const goOnWith = (next: Draft): void => {
    setStart({ draft: draftOf(project), etag, at: project.updated_at });
    setDraft(next);
    save.reset();
  };
  const look = useRepositoryLook(project);
  const found = look.state?.url === draft.git_url ? look.found : null;
  const ports = found?.dockerfiles.find(({ path }) => path === draft.dockerfile_path)?.ports ?? [];
  /** Asks when somebody comes to one of these fields, and again for another address or branch. */
  const ask = (): void => {
    if (reason === null && draft.branch !== '') void look.ask(draft.git_url, draft.branch);
  };
  const proposals: Partial<
    Record<FormField, Pick<ControlProps, 'suggestions' | 'onFocus' | 'onBlur' | 'help'>>
  > = {
    git_url: { onFocus: ask, onBlur: ask },
    branch: { suggestions: found?.branches ?? [], onFocus: ask, onBlur: ask },
    dockerfile_path: {
      suggestions: found?.dockerfiles.map(({ path }) => path) ?? [],
      onFocus: ask,
    },
    container_port:
      ports.length === 0 ? {} : { help: `the Dockerfile exposes ${ports.join(', ')}` },
  };
  const control = (field: FieldOfForm) => (
    <Control
      key={field.name}
      field={field}
      value={draft[field.name]}
      onChange={(value) => setDraft({ ...draft, [field.name]: value } as Draft)}
      error={errors[field.name]}
      {...proposals[field.name]}
    />
  );
  return (
    <Column>
      <Panel
        title="Settings"
        id="settings"
        actions={<Command words={['project', 'show', project.name]} />}
      >
        <form
          onSubmit={(event) => {
            event.preventDefault();
            if (reason !== null || changed.length === 0) return;
            void save.run({
              params: { id: project.id },
              body: patchOf(changed, draft, start.draft),
              ...defined({ headers: tag === null ? undefined : { 'if-match': tag } }),
            });
          }}
        >
          <Column>
            {others.length > 0 && (
              <Conflict
                title="Somebody else changed this project meanwhile"
                keep="Keep mine on top of theirs"
                onKeep={() =>
                  goOnWith({
                    ...draftOf(project),
                    ...Object.fromEntries(changed.map((name) => [name, draft[name]])),
                  })
                }
                onTake={() => goOnWith(draftOf(project))}
              >
                <ul>
                  {others.map((name) => (
                    <li key={name}>
                      {labelOf(name)}: theirs <Code>{JSON.stringify(project[name])}</Code>, yours{' '}
                      <Code>{JSON.stringify(draft[name])}</Code>
                    </li>
                  ))}
                </ul>
              </Conflict>
            )}
            <Columns most={2} align="end">
              {FORM.filter(isShort).map(control)}
            </Columns>
            <LookStatus look={look} url={draft.git_url} />
            {FORM.filter(
              (field) => !isShort(field) && (field.kind !== 'pairs' || !project.env_hidden),
            ).map(control)}
            {!isTold && <FormProblem error={save.error} what="Saving" fields={SHOWN} />}
            <Row>
              <Button
                type="submit"
                look="main"
                reason={reason ?? (changed.length === 0 ? 'nothing is changed' : null)}
                busy={save.busy}
              >
                Save
              </Button>
              {changed.length > 0 && (
                <Text tone="quiet">
                  Changed: {changed.map(labelOf).join(', ')}. Takes effect with the next deployment.
                </Text>
              )}
            </Row>
          </Column>
        </form>
      </Panel>
      <GitAccess project={project} />
      <Panel title="Delete the project" id="delete">
        <Column gap="sm">
          <Text>
            Its containers are removed. If it ran, its prefix and its domains stay reserved for
            DOMAIN_QUARANTINE (7 days by default), also if you create it again. Volumes stay on
            their node until an admin deletes them.
          </Text>
          <Row>
            <Button
              look="danger"
              reason={
                reasonAgainst('delete_project') ??
                (project.deleting ? 'it is being deleted already' : null)
              }
              onClick={() => setDeleting(true)}
            >
              Delete …
            </Button>
            <Command words={['project', 'delete', project.name]} />
          </Row>
        </Column>
      </Panel>
      <Confirm
        open={deleting}
        onClose={() => {
          setDeleting(false);
          remove.reset();
        }}
        title={`Delete ${project.name}?`}
        action="Delete"
        danger
        typed={project.name}
        busy={remove.busy}
        error={dialogError(remove.error)}
        onConfirm={() =>
          void remove.run({
            params: { id: project.id },
            ...defined({ headers: etag === null ? undefined : { 'if-match': etag } }),
          })
        }
      >
        <Text>This cannot be undone.</Text>
      </Confirm>
    </Column>
  );
}
