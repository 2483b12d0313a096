/** `berth logs` of a deployment with two instances. */
import { expect, onTestFinished, test } from 'vitest';
import { logAgent } from '../../control-plane/test/api/log-agent.ts';
import { type TwoInstances, twoInstances } from '../../control-plane/test/api/two-instances.ts';
import { person, type Person, serveOnce, signedIn } from './support.ts';

const served = serveOnce();

async function scene(): Promise<{ who: Person; two: TwoInstances; agents: Agents }> {
  const two = await twoInstances(served.api);
  const agents: Agents = [
    logAgent(() => served.url, two.nodes[0]),
    logAgent(() => served.url, two.nodes[1]),
  ];
  const who = await signedIn(served.url);
  return { who, two, agents };
}
type Agents = [ReturnType<typeof logAgent>, ReturnType<typeof logAgent>];

test('each line begins with its instance, in a colour in a terminal, unless one is chosen', async () => {
  const { who, agents, two } = await scene();
  await agents[0].printUnfollowed('one');
  await agents[1].printUnfollowed('two');
  const all = await who.berth(['logs', 'shop']);
  expect(all).toMatchObject({ code: 0, out: 'web 1 | one\nweb 2 | two\n' });
  const coloured = await who.berth(['logs', 'shop'], { terminal: { out: true } });
  expect(coloured.out).toBe('\u001b[36mweb 1 |\u001b[39m one\n\u001b[33mweb 2 |\u001b[39m two\n');
  const second = await who.berth(['logs', 'shop', '--process', 'web', '--instance', '2']);
  expect(second).toMatchObject({ code: 0, out: 'two\n' });
  const json = await who.berth(['logs', 'shop', '--json', '--instance', '1']);
  expect(JSON.parse(json.out)).toMatchObject({
    lines: [{ process: 'web', instance: 1, deployment_id: two.deployment, text: 'one' }],
  });
  const unknown = await who.berth(['logs', 'shop', '--process', 'worker']);
  expect(unknown.code).not.toBe(0);
  expect(unknown.err).toContain('no such process; the processes are web');

  const stop = new AbortController();
  onTestFinished(() => stop.abort());
  let out = '';
  const following = who.berth(['logs', 'shop', '-f', '-n', '0'], {
    interrupted: stop.signal,
    onOut: (text) => (out += text),
  });
  const keys = [await agents[0].ready(), await agents[1].ready()];
  await agents[1].print(keys[1] ?? '', ['three']);
  await expect.poll(() => out, { timeout: 20_000 }).toBe('web 2 | three\n');
  await agents[0].print(keys[0] ?? '', ['four']);
  await expect.poll(() => out, { timeout: 20_000 }).toBe('web 2 | three\nweb 1 | four\n');
  stop.abort();
  await following;
}, 60_000);

test('the numbers of instances, and options that do not fit', async () => {
  const who = person();
  expect((await who.berth(['logs', 'shop', '--instance', '0'])).err).toContain('at least 1');
  expect((await who.berth(['logs', 'shop', '--build', '--instance', '1'])).err).toContain(
    '--build cannot be combined with --process or --instance',
  );
});
