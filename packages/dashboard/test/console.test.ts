/** The console: why it is off, which containers it offers, and the protocol of a session. */
import { describe, expect, it } from 'vitest';
import { placesOf, whyOff } from '../src/pages/project/console.tsx';
import {
  MAX_WAITING,
  openSession,
  type SessionEnd,
  type Socket,
} from '../src/parts/exec-session.ts';

const ME = { id: 'u1', email: 'ada@example.org', role: 'developer' } as const;
const rules = { name: 'shop', allow_exec: true, exec_role: 'admin', members: [] } as const;

describe('why the console is off', () => {
  it.each([
    [{ ...rules, allow_exec: false }, /switched off.*an admin allows it in the settings/],
    [rules, /need the role admin here, and you are developer/],
  ])('%j', (project, text) => expect(whyOff({ ...project, members: [] }, ME)).toMatch(text));
  it('is on for a developer if the project says so, and for an admin', () => {
    expect(whyOff({ ...rules, exec_role: 'developer', members: [] }, ME)).toBeNull();
    expect(whyOff({ ...rules, members: [] }, { ...ME, role: 'admin' })).toBeNull();
  });
});

it('offers the containers that run, in the order of the processes', () => {
  const at = (process: string, number: number, state: string, node_name: string | null = 'a') => ({
    process,
    number,
    state: state as 'serving',
    node_name,
  });
  expect(
    placesOf(
      [{ name: 'web' }, { name: 'worker' }],
      [
        at('worker', 1, 'up'),
        at('web', 2, 'serving', null),
        at('web', 1, 'serving'),
        at('web', 3, 'waiting'),
      ],
    ).map(({ label }) => label),
  ).toEqual(['web 1 on a', 'web 2', 'worker 1 on a']);
});

describe('a session', () => {
  function open() {
    const sent: (string | Uint8Array)[] = [];
    const ends: SessionEnd[] = [];
    const shown: { bytes: Uint8Array; done: () => void }[] = [];
    const socket: Socket = Object.assign(new EventTarget(), {
      readyState: 1 as const,
      binaryType: 'blob' as const,
      send: (data: unknown) => void sent.push(data as string | Uint8Array),
      close: () => void socket.dispatchEvent(new Event('close')),
    });
    const opened: [string, string[]][] = [];
    const session = openSession(
      { ticket: 'secret', url: 'ws://inside:8000/api/exec/e1' },
      'https://berth.example.org',
      {
        onReady: () => undefined,
        onOutput: (bytes, done) => void shown.push({ bytes, done }),
        onEnd: (end) => ends.push(end),
      },
      (address, protocols) => {
        opened.push([address, protocols]);
        return socket;
      },
    );
    const get = (data: unknown) => socket.dispatchEvent(new MessageEvent('message', { data }));
    const says = (message: object) => get(JSON.stringify(message));
    return { session, socket, sent, ends, shown, opened, get, says };
  }

  it('opens at this page’s origin, with the ticket in the subprotocol only', () => {
    expect(open().opened).toEqual([
      ['wss://berth.example.org/api/exec/e1', ['berth.exec.v1', 'berth.ticket.secret']],
    ]);
  });

  it('sends keys and sizes, and says the exit code at the end', () => {
    const { session, socket, sent, ends, says } = open();
    says({ type: 'ready' });
    session.send(new TextEncoder().encode('ls'));
    session.resize({ rows: 10, cols: 20 });
    expect(sent).toEqual([new Uint8Array([0, 108, 115]), '{"type":"resize","rows":10,"cols":20}']);
    says({ type: 'exit', code: 3 });
    socket.close();
    expect(ends).toEqual([{ code: 3, why: 'The command ended with exit code 3.' }]);
  });

  it('sends no more than the window until the agent has taken it', () => {
    const { session, sent, says } = open();
    session.send(new Uint8Array(1_200_000));
    const before = sent.length;
    says({ type: 'taken', bytes: 1_048_576 });
    expect([before, sent.length]).toEqual([16, 19]);
  });

  it('ends when more output waits than the page can show', () => {
    const { ends, shown, get } = open();
    for (let i = 0; i < MAX_WAITING / 65_536 + 1; i++) get(new Uint8Array(65_537).buffer);
    expect(shown).toHaveLength(MAX_WAITING / 65_536);
    expect(ends).toMatchObject([{ code: null, why: expect.stringContaining('use berth exec') }]);
  });

  it.each([
    ['before it began', false, /did not begin/],
    ['later', true, /nothing is resumed/],
  ])('says why a connection that is lost %s ends it', (_, isReady, text) => {
    const { socket, ends, says } = open();
    if (isReady) says({ type: 'ready' });
    socket.close();
    expect(ends[0]?.why).toMatch(text);
  });

  it('says the reason of Berth, and that the person ended it', () => {
    const first = open();
    first.says({ type: 'error', message: 'no byte for 15 minutes' });
    first.socket.close();
    expect(first.ends[0]?.why).toBe('no byte for 15 minutes');
    const second = open();
    second.session.close();
    expect(second.ends[0]?.why).toBe('You ended the session.');
  });
});
