/** The tabs of a project, except deployments, logs, metrics, members and settings. */
import { MOUNT_MODES, type MountMode } from '@berth/wire/dataset';
import type { Project, ProjectPatch } from '@berth/wire/project';
import { FORGES, type Forge } from '@berth/wire/hook';
import { ApiError } from '@berth/wire/client';
import { useState } from 'react';
import { useProjectReasons } from '../app/session.tsx';
import { useAsk, useList } from '../api/queries.ts';
import { Button, Copy, Menu } from '../ui/controls.tsx';
import { Facts, Table } from '../ui/data.tsx';
import { Checkbox, Select } from '../ui/fields.tsx';
import { Note } from '../ui/feedback.tsx';
import { Column, Columns, Panel, Row } from '../ui/layout.tsx';
import { Confirm } from '../ui/overlay.tsx';
import { Status } from '../ui/status.tsx';
import { TextField } from '../ui/text-field.tsx';
import { Code, PageLink, SiteLink, Text } from '../ui/text.tsx';
import { useChange } from './actions.tsx';
import { Answer } from './answer.tsx';
import { Command, Empty } from './command.tsx';
import { Conflict } from './conflict.tsx';
import { dialogError, fieldErrors, FormProblem, Problem } from './problem.tsx';
import { looksSecret } from './secret-name.ts';
import { CertificateStatus, DatasetStatus } from './states.tsx';
import { useTagged } from './tagged.ts';
import { Ago } from './time.tsx';
import { bytesText, durationText } from './time-text.ts';

type Tab = { project: Project };

/** The error of an action on a row, above its table. */
const Problems = ({ of, what }: { of: unknown; what: string }) =>
  of === null || of === undefined ? null : <Problem error={of} what={what} />;

export function Env({ project: shown }: Tab) {
  const { project, headers } = useTagged(shown);
  const reason = useProjectReasons(project)('set_env');
  const secrets = useList('listSecrets', { params: { id: project.id } });
  const [name, setName] = useState('');
  const [value, setValue] = useState('');
  const [isSecret, setIsSecret] = useState(true);
  /** The variables when the person began to type; null: nothing is typed. */
  const [seen, setSeen] = useState<Readonly<Record<string, string>> | null>(null);
  const env = project.env ?? {};
  const typing =
    (set: (text: string) => void) =>
    (text: string): void => {
      setSeen(seen ?? env);
      set(text);
    };
  const theirs = env[name];
  const isTheirs = !isSecret && seen !== null && theirs !== seen[name] && theirs !== value;
  /** Empties the form. The next value is a secret again, as in a new form. */
  const done = (): void => {
    setName('');
    setValue('');
    setIsSecret(true);
    setSeen(null);
  };
  const putEnv = useChange('putEnv', done);
  const putSecret = useChange('putSecret', done);
  const deleteEnv = useChange('deleteEnv');
  const deleteSecret = useChange('deleteSecret');
  const id = project.id;
  const save = (): void => {
    putEnv.reset();
    putSecret.reset();
    if (isSecret) void putSecret.run({ params: { id, name }, body: { value } });
    else void putEnv.run({ params: { id, name }, body: { value }, ...headers });
  };
  const error = putEnv.error ?? putSecret.error;
  const fields = fieldErrors(error);
  const notYet =
    reason ??
    (name === ''
      ? 'it needs a name'
      : isTheirs
        ? 'choose between their value and yours first'
        : null);
  return (
    <Column>
      <Note>A change takes effect with the next deployment.</Note>
      <Panel title="Set a variable or a secret" id="set">
        <form
          onSubmit={(event) => {
            event.preventDefault();
            if (notYet === null) save();
          }}
        >
          <Column gap="sm">
            <Columns most={2}>
              <TextField
                label="Name"
                value={name}
                onChange={typing(setName)}
                mono
                error={fields['name'] ?? null}
              />
              <TextField
                label="Value"
                value={value}
                onChange={typing(setValue)}
                secret={isSecret}
                mono
                error={fields['value'] ?? null}
              />
            </Columns>
            <Checkbox
              label="Secret: nobody can read the value again"
              value={isSecret}
              onChange={setIsSecret}
            />
            {!isSecret && looksSecret(name, value) && (
              <Note tone="warn" live>
                {`${name === '' ? 'The value' : name} looks like a secret. Everybody who may ` +
                  'change the project can read a variable; choose Secret to hide it.'}
              </Note>
            )}
            {isTheirs ? (
              <Conflict
                title={
                  `Somebody else ${theirs === undefined ? 'removed' : 'changed'} ${name} ` +
                  'meanwhile'
                }
                keep="Replace theirs with mine"
                onKeep={() => setSeen(env)}
                onTake={done}
              >
                <Text>
                  {theirs === undefined ? (
                    'theirs: no value'
                  ) : (
                    <>
                      theirs <Code>{theirs}</Code>
                    </>
                  )}
                  , yours <Code>{value}</Code>
                </Text>
              </Conflict>
            ) : (
              <FormProblem error={error} what="Saving" fields={['name', 'value']} />
            )}
            <Row>
              <Button
                type="submit"
                look="main"
                reason={notYet}
                busy={putEnv.busy || putSecret.busy}
              >
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
      <Panel
        flush
        title="Environment variables"
        id="env"
        actions={<Command words={['env', 'list', project.name]} />}
      >
        <Problems of={deleteEnv.error} what="Removing the variable" />
        {project.env_names.length === 0 ? (
          <Empty>No variables.</Empty>
        ) : (
          <Table
            label="Environment variables"
            rows={project.env_names}
            id={(row) => row}
            cells={[
              { head: 'Name', rowHead: true, cell: (row) => <Code>{row}</Code> },
              {
                head: 'Value',
                cell: (row) =>
                  project.env === undefined ? (
                    <Text tone="quiet">only developers see it</Text>
                  ) : (
                    <Code>{project.env[row] ?? ''}</Code>
                  ),
              },
              {
                head: 'Change',
                cell: (row) => (
                  <Menu
                    label={`Actions for ${row}`}
                    items={[
                      {
                        label: 'Remove',
                        danger: true,
                        reason,
                        onClick: () =>
                          void deleteEnv.run({ params: { id, name: row }, ...headers }),
                      },
                    ]}
                  />
                ),
              },
            ]}
          />
        )}
      </Panel>
      <Panel
        flush
        title="Secrets"
        id="secrets"
        actions={<Command words={['secret', 'list', project.name]} />}
      >
        <Problems of={deleteSecret.error} what="Deleting the secret" />
        <Answer query={secrets.query} what="the secrets">
          {() =>
            secrets.items.length === 0 ? (
              <Empty>No secrets.</Empty>
            ) : (
              <Table
                label="Secrets"
                rows={secrets.items}
                id={(row) => row.name}
                cells={[
                  { head: 'Name', rowHead: true, cell: (row) => <Code>{row.name}</Code> },
                  {
                    head: 'For',
                    cell: (row) =>
                      `${row.scope === 'run' ? 'container' : 'build'}, as ` +
                      (row.as === 'env' ? 'variable' : 'file'),
                  },
                  {
                    head: 'Fingerprint',
                    wide: true,
                    cell: (row) => <Code>{row.fingerprint}</Code>,
                  },
                  { head: 'Set', cell: (row) => <Ago at={row.set_at} /> },
                  { head: 'By', wide: true, cell: (row) => row.set_by ?? '' },
                  {
                    head: 'Change',
                    cell: (row) => (
                      <Menu
                        label={`Actions for ${row.name}`}
                        items={[
                          {
                            label: 'Delete',
                            danger: true,
                            reason,
                            onClick: () =>
                              void deleteSecret.run({ params: { id, name: row.name } }),
                          },
                        ]}
                      />
                    ),
                  },
                ]}
              />
            )
          }
        </Answer>
      </Panel>
    </Column>
  );
}

export function Data({ project: shown }: Tab) {
  const { project, headers, isRead } = useTagged(shown);
  const reason = useProjectReasons(project)('edit_project');
  const [volume, setVolume] = useState('');
  const [volumePath, setVolumePath] = useState('');
  const [dataset, setDataset] = useState('');
  const [mode, setMode] = useState<MountMode>('dependency');
  const addVolume = useChange('patchProject', () => {
    setVolume('');
    setVolumePath('');
  });
  const removeVolume = useChange('patchProject');
  const addDataset = useChange('patchProject', () => {
    setDataset('');
    // A mode that lets the container change the files is chosen each time.
    setMode('dependency');
  });
  const removeDataset = useChange('patchProject');
  const save = (by: typeof addVolume, body: Pick<ProjectPatch, 'volumes' | 'datasets'>): void => {
    if (isRead) void by.run({ params: { id: project.id }, body, ...headers });
  };
  const notRead = reason ?? (isRead ? null : 'the project is not read yet');
  const noVolume =
    notRead ?? (volume === '' || volumePath === '' ? 'it needs a name and a path' : null);
  const noDataset = notRead ?? (dataset === '' ? 'choose a dataset' : null);
  /**
   * The list is sent as a whole; an error stands at the field of its last part, else at the first
   * one.
   */
  const wrong = (
    { error }: typeof addVolume,
    part: 'name' | 'mount_path' | 'dataset_id',
  ): string | undefined => {
    const found =
      error instanceof ApiError
        ? error.problem?.errors?.find(({ field }) => /^(?:volumes|datasets)\b/.test(field))
        : undefined;
    return found !== undefined &&
      (found.field.endsWith('.mount_path')
        ? 'mount_path'
        : part === 'dataset_id'
          ? part
          : 'name') === part
      ? found.message
      : undefined;
  };
  const datasets = useList('listDatasets', { query: { limit: 200 } });
  const byId = new Map(datasets.items.map((dataset) => [dataset.id, dataset]));
  const unused = datasets.items.filter(
    ({ id }) => !project.datasets.some(({ dataset_id }) => dataset_id === id),
  );
  const placement = useAsk('placement', { query: { project_id: project.id } });
  return (
    <Column>
      <Panel
        flush
        title="Datasets"
        id="datasets"
        actions={<Command words={['project', 'show', project.name]} />}
      >
        <Problems of={removeDataset.error} what="Removing the dataset" />
        {project.datasets.length === 0 ? (
          <Empty words={['dataset', 'list']}>
            The project uses no datasets. This command lists those of the platform:
          </Empty>
        ) : (
          <Table
            label="Datasets"
            rows={project.datasets}
            id={(row) => row.dataset_id}
            cells={[
              {
                head: 'Dataset',
                rowHead: true,
                cell: (row) => (
                  <PageLink
                    to="/datasets/$name"
                    params={{ name: byId.get(row.dataset_id)?.name ?? row.dataset_id }}
                    size="sm"
                  >
                    {byId.get(row.dataset_id)?.name ?? row.dataset_id}
                  </PageLink>
                ),
              },
              { head: 'Mode', cell: (row) => row.mode },
              {
                head: 'Newest version',
                number: true,
                cell: (row) => byId.get(row.dataset_id)?.version ?? '',
              },
              {
                head: 'State',
                cell: (row) => {
                  const found = byId.get(row.dataset_id);
                  return found === undefined ? null : <DatasetStatus status={found.status} />;
                },
              },
              {
                head: 'Change',
                cell: (row) => (
                  <Menu
                    label={`Actions for ${byId.get(row.dataset_id)?.name ?? row.dataset_id}`}
                    items={[
                      {
                        label: 'Remove from the project',
                        danger: true,
                        reason,
                        onClick: () =>
                          save(removeDataset, {
                            datasets: project.datasets.filter(
                              ({ dataset_id }) => dataset_id !== row.dataset_id,
                            ),
                          }),
                      },
                    ]}
                  />
                ),
              },
            ]}
          />
        )}
      </Panel>
      {unused.length > 0 && (
        <Panel title="Add a dataset" id="add-dataset">
          <form
            onSubmit={(event) => {
              event.preventDefault();
              if (noDataset === null)
                save(addDataset, {
                  datasets: [...project.datasets, { dataset_id: dataset, mode }],
                });
            }}
          >
            <Column gap="sm">
              <Columns most={2} align="end">
                <Select
                  label="Dataset"
                  value={dataset}
                  onChange={setDataset}
                  options={[
                    { value: '', label: 'choose' },
                    ...unused.map(({ id, name: label }) => ({ value: id, label })),
                  ]}
                  error={wrong(addDataset, 'dataset_id')}
                />
                <Select
                  label="Mode"
                  help={
                    'dependency: a copy that the container only reads; readwrite: the share ' +
                    'itself'
                  }
                  value={mode}
                  onChange={setMode}
                  options={MOUNT_MODES.map((value) => ({ value, label: value }))}
                />
              </Columns>
              <FormProblem
                error={addDataset.error}
                what="Adding the dataset"
                fields={['datasets']}
              />
              <Row>
                <Button type="submit" reason={noDataset} busy={addDataset.busy}>
                  Add the dataset
                </Button>
              </Row>
            </Column>
          </form>
        </Panel>
      )}
      <Panel flush title="Volumes" id="volumes">
        <Problems of={removeVolume.error} what="Removing the volume" />
        {project.volumes.length === 0 ? (
          <Empty>No volumes. A volume is a folder on the node that outlives deployments.</Empty>
        ) : (
          <Table
            label="Volumes"
            rows={project.volumes}
            id={(row) => row.name}
            cells={[
              { head: 'Volume', rowHead: true, cell: (row) => row.name },
              { head: 'Path in the container', cell: (row) => <Code>{row.mount_path}</Code> },
              {
                head: 'Change',
                cell: (row) => (
                  <Menu
                    label={`Actions for ${row.name}`}
                    items={[
                      {
                        label: 'Remove from the project',
                        danger: true,
                        reason,
                        onClick: () =>
                          save(removeVolume, {
                            volumes: project.volumes.filter(({ name }) => name !== row.name),
                          }),
                      },
                    ]}
                  />
                ),
              },
            ]}
          />
        )}
      </Panel>
      <Panel title="Add a volume" id="add-volume">
        <form
          onSubmit={(event) => {
            event.preventDefault();
            if (noVolume === null)
              save(addVolume, {
                volumes: [...project.volumes, { name: volume, mount_path: volumePath }],
              });
          }}
        >
          <Column gap="sm">
            <Columns most={2} align="end">
              <TextField
                label="Volume"
                value={volume}
                onChange={setVolume}
                placeholder="uploads"
                mono
                error={wrong(addVolume, 'name')}
              />
              <TextField
                label="Path in the container"
                value={volumePath}
                onChange={setVolumePath}
                placeholder="/var/uploads"
                mono
                error={wrong(addVolume, 'mount_path')}
              />
            </Columns>
            <FormProblem error={addVolume.error} what="Adding the volume" fields={['volumes']} />
            <Row>
              <Button type="submit" reason={noVolume} busy={addVolume.busy}>
                Add the volume
              </Button>
              <Text tone="quiet">
                A folder on the node of the project. It takes effect with the next deployment.
              </Text>
            </Row>
          </Column>
        </form>
      </Panel>
      <Panel
        flush
        title="If it were deployed now"
        id="placement"
        actions={<Command words={['placement', project.name]} />}
      >
        <Answer query={placement} what="the placement">
          {(preview) => (
            <Table
              label="Score of each node"
              rows={preview.items}
              id={(row) => row.node_id}
              cells={[
                { head: 'Node', rowHead: true, cell: (row) => row.hostname },
                {
                  head: 'Result',
                  cell: (row) =>
                    row.node_id === preview.winner ? (
                      <Status mark="ok">chosen</Status>
                    ) : row.eligible ? (
                      <Status mark="off">possible</Status>
                    ) : (
                      <Status mark="bad">{row.reason ?? 'refused'}</Status>
                    ),
                },
                {
                  head: 'Score',
                  number: true,
                  cell: (row) => (row.eligible ? row.score.toFixed(2) : '–'),
                },
                {
                  head: 'Datasets there',
                  number: true,
                  wide: true,
                  cell: (row) => row.cached_dataset_count,
                },
                { head: 'To copy', number: true, cell: (row) => bytesText(row.missing_bytes) },
                {
                  head: 'Estimate',
                  number: true,
                  wide: true,
                  cell: (row) =>
                    row.estimated_seconds === null
                      ? ''
                      : durationText(row.estimated_seconds * 1000),
                },
              ]}
            />
          )}
        </Answer>
      </Panel>
    </Column>
  );
}

export function Domains({ project }: Tab) {
  const domains = useAsk('projectDomains', { params: { id: project.id } });
  const { project: current, headers, isRead } = useTagged(project);
  const reason = useProjectReasons(project)('edit_project');
  const [typed, setTyped] = useState('');
  const [removing, setRemoving] = useState<string | null>(null);
  const add = useChange('patchProject', () => setTyped(''));
  const remove = useChange('patchProject', () => setRemoving(null));
  const notYet =
    reason ??
    (isRead ? (typed === '' ? 'it needs a domain' : null) : 'the project is not read yet');
  const save = (change: typeof add, domains: string[]): void => {
    if (isRead) void change.run({ params: { id: project.id }, body: { domains }, ...headers });
  };
  /** The list is sent as a whole; the form has one field for it. */
  const wrong =
    add.error instanceof ApiError
      ? add.error.problem?.errors?.find(({ field }) => field.startsWith('domains'))
      : undefined;
  return (
    <Column>
      <Panel title="Address" id="address">
        <Facts
          items={[
            ['Berth’s address', <SiteLink key="a" url={project.url} />],
            project.certificate === null
              ? null
              : ['Certificate', <CertificateStatus key="c" certificate={project.certificate} />],
          ]}
        />
      </Panel>
      <Panel title="Add a domain" id="add">
        <form
          onSubmit={(event) => {
            event.preventDefault();
            if (notYet === null) save(add, [...current.domains, typed]);
          }}
        >
          <Column gap="sm">
            <TextField
              label="Domain"
              value={typed}
              onChange={setTyped}
              placeholder="www.example.org"
              error={wrong?.message}
            />
            <FormProblem error={add.error} what="Saving" fields={['domains']} />
            <Row>
              <Button type="submit" look="main" reason={notYet} busy={add.busy}>
                Add
              </Button>
              <Command
                words={[
                  'domain',
                  'add',
                  typed === '' ? 'www.example.org' : typed,
                  '--project',
                  project.name,
                ]}
              />
            </Row>
          </Column>
        </form>
      </Panel>
      <Panel
        flush
        title="Custom domains"
        id="domains"
        actions={<Command words={['domain', 'list', project.name]} />}
      >
        <Answer query={domains} what="the domains">
          {({ items }) =>
            items.length === 0 ? (
              <Empty>No custom domains.</Empty>
            ) : (
              <Table
                label="Custom domains"
                rows={items}
                id={(row) => row.domain}
                cells={[
                  { head: 'Domain', rowHead: true, cell: (row) => <SiteLink url={row.url} /> },
                  {
                    head: 'DNS',
                    cell: (row) => (
                      <>
                        <Status
                          mark={
                            row.dns.state === 'ok'
                              ? 'ok'
                              : row.dns.state === 'unknown'
                                ? 'off'
                                : 'warn'
                          }
                        >
                          {row.dns.state}
                        </Status>
                        {row.dns.problem !== null && <Text size="xs">{row.dns.problem}</Text>}
                      </>
                    ),
                  },
                  {
                    head: 'Certificate',
                    cell: (row) =>
                      row.certificate === null ? (
                        <Text tone="quiet">
                          {row.published ? 'not checked yet' : 'not published yet'}
                        </Text>
                      ) : (
                        <>
                          <CertificateStatus certificate={row.certificate} />
                          {row.certificate.problem !== null && (
                            <Text size="xs">{row.certificate.problem}</Text>
                          )}
                        </>
                      ),
                  },
                  {
                    head: 'Change',
                    cell: (row) => (
                      <Menu
                        label={`Actions for ${row.domain}`}
                        items={[
                          {
                            label: 'Remove',
                            danger: true,
                            reason,
                            onClick: () => setRemoving(row.domain),
                          },
                        ]}
                      />
                    ),
                  },
                ]}
              />
            )
          }
        </Answer>
      </Panel>
      <Confirm
        open={removing !== null}
        onClose={() => {
          setRemoving(null);
          remove.reset();
        }}
        title={`Remove ${removing ?? ''}?`}
        action="Remove"
        danger
        busy={remove.busy}
        error={dialogError(remove.error)}
        onConfirm={() =>
          save(
            remove,
            current.domains.filter((domain) => domain !== removing),
          )
        }
      >
        <Text>
          Its visitors get no answer there any more. When the domain comes back, they sign in again.
        </Text>
      </Confirm>
    </Column>
  );
}

export function Hook({ project }: Tab) {
  const hook = useAsk('getHook', { params: { id: project.id } });
  const reason = useProjectReasons(project)('set_hook');
  const [forge, setForge] = useState<Forge>('gitea');
  const [secret, setSecret] = useState<string | null>(null);
  const put = useChange('putHook', (answer) => setSecret(answer.secret));
  const remove = useChange('deleteHook', () => setSecret(null));
  const none = hook.error instanceof ApiError && hook.error.status === 404;
  const deliveries = useList(
    'listDeliveries',
    { params: { id: project.id }, query: { limit: 20 } },
    { enabled: hook.data !== undefined && !none },
  );
  return (
    <Column>
      {secret !== null && (
        <Note tone="warn" title="Copy the secret now; it is not shown again" live>
          <Row>
            <Code>{secret}</Code>
            <Copy text={secret} label="Copy the secret" />
          </Row>
        </Note>
      )}
      {none ? (
        <Panel title="Deploy on push" id="hook">
          <Column gap="sm">
            <Text>
              After each push, the forge calls an address of Berth. Berth then looks at the branch
              and deploys it.
            </Text>
            <Select
              label="Forge"
              value={forge}
              onChange={setForge}
              options={FORGES.map((value) => ({ value, label: value }))}
            />
            {put.error !== null && put.error !== undefined && (
              <Problem error={put.error} what="Creating the hook" />
            )}
            <Row>
              <Button
                look="main"
                reason={reason}
                busy={put.busy}
                onClick={() => void put.run({ params: { id: project.id }, body: { forge } })}
              >
                Create the hook
              </Button>
              <Command words={['hook', 'create', '--forge', forge, '--project', project.name]} />
            </Row>
          </Column>
        </Panel>
      ) : (
        <Answer query={hook} what="the hook">
          {(found) => (
            <>
              <Problems of={remove.error} what="Deleting the hook" />
              <Panel
                title="Hook"
                id="hook"
                actions={
                  <Button
                    size="xs"
                    look="danger"
                    reason={reason}
                    busy={remove.busy}
                    onClick={() => void remove.run({ params: { id: project.id } })}
                  >
                    Delete the hook
                  </Button>
                }
              >
                <Facts
                  items={[
                    ['Forge', found.forge],
                    [
                      'Address',
                      <span key="u">
                        <Code>{found.url}</Code> <Copy text={found.url} label="Copy the address" />
                      </span>,
                    ],
                    [
                      'Steps',
                      'At the forge, add a webhook to the repository: this address, the ' +
                        'secret, content type JSON, only push events.',
                    ],
                    ['Refused deliveries', String(found.refused)],
                  ]}
                />
              </Panel>
              <Panel
                flush
                title="Deliveries"
                id="deliveries"
                actions={<Command words={['hook', 'deliveries', project.name]} />}
              >
                {deliveries.items.length === 0 ? (
                  <Empty>No deliveries yet. Push a commit.</Empty>
                ) : (
                  <Table
                    label="Deliveries"
                    rows={deliveries.items}
                    id={(row) => row.id}
                    cells={[
                      { head: 'Received', rowHead: true, cell: (row) => <Ago at={row.at} /> },
                      {
                        head: 'Event',
                        cell: (row) => `${row.event}${row.branch === null ? '' : ` ${row.branch}`}`,
                      },
                      {
                        head: 'Verdict',
                        cell: (row) => (
                          <>
                            {row.verdict ?? 'in progress'}
                            {row.reason !== null && (
                              <Text size="xs" tone="quiet">
                                {row.reason}
                              </Text>
                            )}
                          </>
                        ),
                      },
                      {
                        head: 'Deployment',
                        cell: (row) =>
                          row.deployment_id === null ? null : (
                            <PageLink
                              to="/deployments/$id"
                              params={{ id: row.deployment_id }}
                              size="sm"
                            >
                              open
                            </PageLink>
                          ),
                      },
                    ]}
                  />
                )}
              </Panel>
            </>
          )}
        </Answer>
      )}
    </Column>
  );
}
