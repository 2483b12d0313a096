/** The real handlers of the routes of jobs, without HTTP. */
import type { Job, JobCreate, JobPatch } from '@berth/wire/job';
import type { Run } from '@berth/wire/run';
import type { Define } from '../../src/api/define.ts';
import { type Deps, jobRoutes } from '../../src/api/routes/jobs.ts';

export type JobEndpoints = {
  create(project: string, body: JobCreate): Promise<Job>;
  patch(project: string, name: string, body: JobPatch): Promise<Job>;
  delete(project: string, name: string): Promise<void>;
  run(project: string, name: string): Promise<Run>;
};

export function jobEndpoints(deps: Deps): JobEndpoints {
  const handlers = new Map<string, (call: object) => unknown>();
  const define = (name: string, handler: (call: object) => unknown): void =>
    void handlers.set(name, handler);
  jobRoutes(define as unknown as Define, deps);
  const call = async (route: string, id: string, name: string, body: object): Promise<unknown> =>
    handlers.get(route)?.({ params: { id, name }, body, user: { email: 'ann@example.com' } });
  return {
    create: (project, body) => call('createJob', project, '', body) as Promise<Job>,
    patch: (project, name, body) => call('patchJob', project, name, body) as Promise<Job>,
    delete: (project, name) => call('deleteJob', project, name, {}) as Promise<void>,
    run: (project, name) => call('runJob', project, name, {}) as Promise<Run>,
  };
}
