/**
 * People who change settings of projects while they are deployed: the branch, the repository,
 * whether two versions may run at once, the time to start, and whether pushes deploy. Only some
 * runs have them. A source of chance of its own leaves the other decisions of the seed as they are.
 */
import type { History } from '@berth/testbed/history';
import type { ProjectSettings } from '../../src/domain/platform/records.ts';
import type { ControlPlane } from './front.ts';
import { type Forge, type Place, placeOf } from './forge.ts';
import type { Random } from './random.ts';
import type { Life, World } from './world.ts';

export type Changing = {
  begin(forMs: number): void;
  /** Time of the last request for a change of the project; 0: none. */
  changedAt(project: string): number;
};

export function createChanging(deps: {
  world: World;
  history: History;
  controlPlane: ControlPlane;
  projects: ReadonlyMap<string, string>;
  forge: Pick<Forge, 'use'>;
  random: Random;
  deploy: (project: string) => Promise<void>;
}): Changing {
  const { world, history, controlPlane, projects, forge, random } = deps;
  const life: Life = { name: 'people who change settings', alive: true };
  const places = new Map<string, Place>();
  const changed = new Map<string, number>();
  let requests = 0;

  async function change(project: string, name: string): Promise<void> {
    const given: Partial<ProjectSettings> = {};
    const what = random.next();
    if (what < 0.4) given.replace = random.pick(['recreate', 'rolling'] as const);
    else if (what < 0.75) given.branch = random.pick(['main', 'release']);
    else if (what < 0.85)
      given.git_url = `https://git.example/${random.pick([name, `${name}-2`])}.git`;
    else if (what < 0.93) given.start_seconds = random.pick([null, 3, 30]);
    else given.deploy_on_push = random.chance(0.7);
    // Often a deployment is under way, or is requested at the same moment.
    if (random.chance(0.4)) void deps.deploy(project).catch(ignoreErrors);
    const place = {
      ...(places.get(project) ?? { git_url: `https://git.example/${name}.git`, branch: 'main' }),
      ...given,
    };
    places.set(project, { git_url: place.git_url, branch: place.branch });
    const sent = world.now();
    changed.set(project, sent);
    const request = `change-${(requests += 1)}`;
    history.record({
      type: 'changing',
      project,
      request,
      ...(given.replace === undefined ? {} : { replace: given.replace }),
      place: placeOf(place),
    });
    forge.use(project, place);
    const wanted = { ...given, git_url: place.git_url, branch: place.branch };
    await controlPlane.ask(life, (api) => api.stores.projects.patch(project, wanted, world.now()));
    history.record({ type: 'changed', project, request, sent });
    if (random.chance(0.3)) await deps.deploy(project);
  }

  return {
    begin(forMs) {
      for (let t = 0; t < forMs; t += random.int(2_000, 9_000))
        world.after(t, life, () => {
          const [project, name] = random.maybe([...projects]) ?? [];
          if (project !== undefined && name !== undefined)
            change(project, name).catch(ignoreErrors);
        });
    },
    changedAt: (project) => changed.get(project) ?? 0,
  };
}

/** Refused changes and lost answers. */
function ignoreErrors(error: unknown): void {
  if (!(error instanceof Error)) throw error;
}
