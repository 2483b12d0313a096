/** The tab "Console": a terminal in a container that runs, as `berth exec` opens one. */
import type { PlacedInstance } from '@berth/wire/instance';
import { roleInProject } from '@berth/wire/can';
import type { ExecTicket } from '@berth/wire/exec';
import type { Project } from '@berth/wire/project';
import type { User } from '@berth/wire/user';
import { useEffect, useRef, useState } from 'react';
import { useApiMutation } from '../../api/mutations.ts';
import { useApiQuery } from '../../api/queries.ts';
import { Command } from '../../parts/command.tsx';
import { wordsOfCommand } from '../../parts/command-words.ts';
import { type ExecSession, openSession, type SessionEnd } from '../../parts/exec-session.ts';
import { hasRole, useMe } from '../../parts/permissions.ts';
import { fieldErrors, FormProblem } from '../../parts/problem.tsx';
import { Button } from '../../ui/controls.tsx';
import { Note } from '../../ui/feedback.tsx';
import { Select } from '../../ui/fields.tsx';
import { Column, Columns, Panel, Row } from '../../ui/layout.tsx';
import { Status } from '../../ui/status.tsx';
import { Terminal, type TerminalHandle } from '../../ui/terminal.tsx';
import { Text } from '../../ui/text.tsx';
import { TextField } from '../../ui/text-field.tsx';
import { commandReason } from './job-draft.ts';

export function Console({ project }: { project: Project }) {
  const off = whyOff(project, useMe());
  return (
    <Panel
      title="Console"
      id="console"
      actions={<Command words={['exec', '--project', project.name, '--', '/bin/sh']} />}
    >
      {off === null ? <Session project={project} /> : <Text>{off}</Text>}
    </Panel>
  );
}

type Rules = Pick<Project, 'allow_exec' | 'exec_role' | 'members' | 'name'>;
/** Returns why this person gets no session here, as sentences; null if the project allows it. */
export function whyOff(
  { allow_exec, exec_role, members, name }: Rules,
  me: Pick<User, 'id' | 'email' | 'role'>,
): string | null {
  if (!allow_exec)
    return (
      `Commands in the containers of ${name} are switched off. Whoever can run one reads all its ` +
      'secrets, so an admin allows it in the settings of the project, and the operator of the node ' +
      'with ALLOW_EXEC=true for its agent.'
    );
  const role = roleInProject(members, me as User) ?? me.role;
  return hasRole(role, exec_role)
    ? null
    : `Commands in the containers of ${name} need the role ${exec_role} here, and you are ${role}.`;
}

type State =
  | { kind: 'none' }
  | { kind: 'opens' }
  | { kind: 'open' }
  | ({ kind: 'ended' } & SessionEnd);

/** The numbers of the instances that run, by process. */
export function placesOf(
  processes: Project['processes'],
  instances: readonly Pick<PlacedInstance, 'process' | 'number' | 'state' | 'node_name'>[],
): { value: string; label: string }[] {
  const runs = instances.filter(({ state }) =>
    ['serving', 'up', 'unhealthy', 'draining'].includes(state),
  );
  const order = processes.map(({ name }) => name);
  return runs
    .toSorted((a, b) => order.indexOf(a.process) - order.indexOf(b.process) || a.number - b.number)
    .map(({ process, number, node_name }) => ({
      value: `${process} ${number}`,
      label: `${process} ${number}${node_name === null ? '' : ` on ${node_name}`}`,
    }));
}

function Session({ project }: { project: Project }) {
  const [command, setCommand] = useState('/bin/sh');
  const [place, setPlace] = useState('');
  const [state, setState] = useState<State>({ kind: 'none' });
  const terminal = useRef<TerminalHandle>(null);
  const session = useRef<ExecSession>(null);
  const form = useRef<HTMLFormElement>(null);
  const id = project.running_deployment_id;
  const running = useApiQuery(
    'getDeployment',
    { params: { id: id ?? '' } },
    { enabled: id !== null && !project.stopped },
  );
  const places = placesOf(project.processes, running.data?.instances ?? []);
  const chosen = places.find(({ value }) => value === place)?.value ?? places[0]?.value ?? '';
  useEffect(() => () => session.current?.close(), []);

  function begin(ticket: ExecTicket): void {
    setState({ kind: 'opens' });
    terminal.current?.clear();
    session.current = openSession(ticket, globalThis.location.origin, {
      onReady() {
        setState({ kind: 'open' });
        const size = terminal.current?.size;
        if (size !== undefined) session.current?.resize(size);
        terminal.current?.focus();
      },
      onOutput: (bytes, done) => terminal.current?.write(bytes, done),
      onEnd(end) {
        session.current = null;
        setState({ kind: 'ended', ...end });
      },
    });
  }
  const create = useApiMutation('execProject', begin);
  const errors = fieldErrors(create.error);
  const isOn = state.kind === 'open' || state.kind === 'opens';
  const words = wordsOfCommand(command);
  const [process = '', number = ''] = chosen.split(' ');
  const reason =
    places.length === 0 && !running.isPending
      ? 'no container of the project runs'
      : commandReason(command);
  const start = async (): Promise<void> => {
    if (reason !== null || words === null || create.busy) return;
    const size = terminal.current?.size ?? { rows: 24, cols: 80 };
    await create.run({
      params: { id: project.id },
      body: { command: words, process, instance: Number(number), tty: true, ...size },
    });
  };
  return (
    <Column gap="sm">
      <form
        ref={form}
        onSubmit={(event) => {
          event.preventDefault();
          void start();
        }}
      >
        <Column gap="sm">
          <Columns most={2} align="end">
            <Select
              label="Container"
              value={chosen}
              onChange={setPlace}
              options={places.length === 0 ? [{ value: '', label: 'none runs' }] : places}
              disabled={isOn}
            />
            <TextField
              label="Command"
              help="a program and its arguments, without a shell; quotes keep words together"
              value={command}
              onChange={setCommand}
              mono
              disabled={isOn}
              error={errors['command']}
            />
          </Columns>
          <FormProblem error={create.error} what="The session" fields={['command']} />
          <Row>
            {isOn ? (
              <Button onClick={() => session.current?.close()}>End the session</Button>
            ) : (
              <Button type="submit" look="main" reason={reason} busy={create.busy}>
                {state.kind === 'ended' ? 'Start again' : 'Start'}
              </Button>
            )}
            {state.kind === 'opens' && <Status mark="busy">connecting</Status>}
            {state.kind === 'open' && (
              <Text tone="quiet">
                Shift+Esc leaves the terminal. The session ends after 15 minutes without a byte.
              </Text>
            )}
          </Row>
        </Column>
      </form>
      {state.kind === 'ended' && (
        <Note tone={state.code === 0 ? 'info' : 'warn'} title={state.why} live>
          {null}
        </Note>
      )}
      <Terminal
        label={`Terminal in ${chosen === '' ? project.name : chosen}`}
        onOpen={(handle) => (terminal.current = handle)}
        onInput={(bytes) => session.current?.send(bytes)}
        onResize={(size) => session.current?.resize(size)}
        onLeave={() => form.current?.querySelector('button')?.focus()}
      />
    </Column>
  );
}
