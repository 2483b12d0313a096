/** What one attempt at a deploy task may remove, stop and start while others work on the same engine. */
import type { TaskOf } from '@berth/wire/task';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Stopped } from '../src/stopped.ts';
import type { Product, TaskContext } from '../src/tasks/task.ts';
import { deployHandlerOn } from './deploy-handler.ts';
import { deployTask } from './fake-control-plane.ts';
import { type FakeEngine, startFakeEngine } from './fake-engine.ts';

let engine: FakeEngine;
beforeEach(async () => void (engine = await startFakeEngine()));
afterEach(() => engine.stop());

/** Each call is another agent, with another memory, on the one engine. */
function agent(over: Partial<FakeEngine['docker']> = {}) {
  const handler = deployHandlerOn({ docker: { ...engine.docker, ...over }, prepare: null });
  const said: string[] = [];
  const ending = new AbortController();
  const begin = (task: TaskOf<'deploy'>, attempt: number): Promise<Product> => {
    const context: TaskContext = {
      attempt,
      signal: ending.signal,
      log: () => undefined,
      say: (_, text) => void said.push(text),
      progress: () => undefined,
    };
    return handler(task, context);
  };
  return { begin, said, lose: () => ending.abort(new Stopped('lost')) };
}
const IMAGE = 'r/app@sha256:1';
const asked = (over: Parameters<typeof deployTask>[1] = {}) =>
  deployTask('d2', { image: IMAGE, image_digest: 'sha256:1', container_name: 'svc-app-g2', generation: 2, probe_seconds: 5, ...over });

describe('two agents with one identity', () => {
  it('a report that is refused removes what this agent made, if nobody went on with it', async () => {
    const product = await agent().begin(asked(), 1);
    expect(engine.all()).toEqual(['svc-app-g2 running']);
    await product.discard();
    expect(engine.all()).toEqual([]);
  });
  it('and not what its twin has gone on with meanwhile', async () => {
    const task = asked();
    const first = await agent().begin(task, 1);
    const twin = agent();
    const second = await twin.begin(task, 2);
    expect(twin.said.join()).toContain('going on with svc-app-g2');
    expect(second.report.container_id).toBe(first.report.container_id);
    await first.discard();
    expect([...engine.containers.keys()]).toEqual([second.report.container_id]);
    await second.discard();
    expect(engine.all()).toEqual([]);
  });
  it('nor where the work was given out again as another task', async () => {
    const first = await agent().begin(asked(), 1);
    const second = await agent().begin(asked(), 1);
    await first.discard();
    expect([...engine.containers.keys()]).toEqual([second.report.container_id]);
  });
  it('nor one that the later attempt made anew under the same name', async () => {
    const first = await agent().begin(asked(), 1);
    await engine.docker.stop(first.report.container_id ?? '', 1);
    const second = await agent().begin(asked(), 1);
    expect(second.report.container_id).not.toBe(first.report.container_id);
    await first.discard();
    expect(engine.all()).toEqual(['svc-app-g2 running']);
  });
  it('one that loses the task while it asks its container leaves the one that its twin has taken', async () => {
    const task = asked();
    let twin: Promise<Product> | undefined;
    const slow = agent({
      async restartAlways() {
        twin ??= agent().begin(task, 2);
        await twin;
        slow.lose();
        throw new Stopped('lost');
      },
    });
    await expect(slow.begin(task, 1)).rejects.toThrow(/lost/);
    expect([...engine.containers.keys()]).toEqual([(await twin)?.report.container_id]);
  });
  it('a stale one does not take back what a later attempt has', async () => {
    const task = asked();
    const later = await agent().begin(task, 2);
    const stale = await agent().begin(task, 1);
    expect(stale.report.container_id).not.toBe(later.report.container_id);
    await stale.discard();
    expect([...engine.containers.keys()]).toEqual([later.report.container_id]);
  });
});

describe('replaced stop-first', () => {
  const of = (id: string, deployment: string, generation: number, over = {}) =>
    engine.put({
      id,
      name: id,
      labels: { 'berth.project': 'prj-1', 'berth.node': 'node-1', 'berth.deployment': deployment, 'berth.generation': String(generation) },
      ...over,
    });
  const recreate = asked.bind(null, { replace: 'recreate', replaces: 'd1' });
  const failing = { restartAlways: () => Promise.reject(new Error('the engine says no')) };

  it('everything of the project is stopped, nothing is removed: the one in quarantine is kept, and that is said', async () => {
    of('svc-app', 'forgotten', 9);
    of('svc-app-g1', 'd1', 1);
    const worker = agent();
    await worker.begin(recreate(), 1);
    expect(engine.all()).toEqual(['svc-app exited', 'svc-app-g1 exited', 'svc-app-g2 running']);
    expect(worker.said.find((line) => line.startsWith('stopping svc-app '))).toMatch(/it is kept, stopped \(docker start svc-app /);
    expect(worker.said.find((line) => line.startsWith('stopping svc-app-g1 '))).not.toMatch(/kept/);
  });
  it('when it fails what served is put back, and that alone', async () => {
    of('svc-app', 'forgotten', 9);
    of('svc-app-g1', 'd1', 1);
    await expect(agent(failing).begin(recreate(), 1)).rejects.toThrow('the engine says no');
    expect(engine.all()).toEqual(['svc-app exited', 'svc-app-g1 running']);
  });
  it('where nothing served, the one that ran', async () => {
    of('svc-app', 'forgotten', 9);
    await expect(agent(failing).begin(asked({ replace: 'recreate', replaces: null }), 1)).rejects.toThrow('the engine says no');
    expect(engine.all()).toEqual(['svc-app running']);
  });
  it('one that a person had stopped is not started over it', async () => {
    of('svc-app', 'forgotten', 9, { state: 'exited' });
    await expect(agent(failing).begin(asked({ replace: 'recreate', replaces: null }), 1)).rejects.toThrow('the engine says no');
    expect(engine.all()).toEqual(['svc-app exited']);
  });
  it('not by an agent that has lost the task: its twin has stopped it', async () => {
    of('svc-app-g1', 'd1', 1);
    const slow = agent({
      async restartAlways() {
        slow.lose();
        throw new Stopped('lost');
      },
    });
    await expect(slow.begin(recreate(), 1)).rejects.toThrow(/lost/);
    expect(engine.all()).toEqual(['svc-app-g1 exited']);
  });
});
