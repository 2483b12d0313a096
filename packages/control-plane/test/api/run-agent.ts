/** Plays the agent of a node that executes runs. */
import type { RunPayload } from '@berth/wire/run-payload';
import type { Api } from './harness.ts';

type OfferedRun = { id: string; kind: string; attempt: number; payload: RunPayload };

export const offeredTo = async (api: Api, node: string): Promise<OfferedRun[]> =>
  (await api.call('agentTasks', { query: { node_id: node } })).json as unknown as OfferedRun[];

/** Claims the first run that the node has. @throws Error if it has none */
export async function claimRun(api: Api, node: string) {
  const task = (await offeredTo(api, node)).find(({ kind }) => kind === 'run');
  if (task === undefined) throw new Error('the node has no run');
  const { json } = await api.call('agentStart', { params: { id: task.id } });
  const headers = { 'x-lease-token': String(json['lease_token']) };
  return {
    task,
    json,
    log: (lines: object[], first = 0) =>
      api.call('agentLogs', { params: { id: task.id }, headers, body: { first, lines } }),
    report: (body: object) => api.call('agentComplete', { params: { id: task.id }, headers, body }),
  };
}

export const exited = (exit_code: number, out_of_memory = false) => ({
  status: 'completed',
  result: { exit_code, out_of_memory },
});

export const failedWith = (code: string) => ({
  status: 'failed',
  result: { error: { code, message: `it was ${code}` } },
});
