/** The events of a deployment, the change of its route, and its facts. */
import type { Deployment, DeploymentEvent } from '@berth/wire/deployment';
import { errorSentence } from '@berth/wire/error-sentence';
import { HealthStatus } from '../../parts/states.tsx';
import { Exact } from '../../parts/time.tsx';
import { durationText, exactTime, zoneAt } from '../../parts/time-text.ts';
import { triggerText } from '../../parts/words.ts';
import { Copy } from '../../ui/controls.tsx';
import { Facts } from '../../ui/data.tsx';
import { Column, Panel } from '../../ui/layout.tsx';
import { Code, Text } from '../../ui/text.tsx';

export const Story = ({ deployment }: { deployment: Deployment }) => (
  <Column>
    <Events deployment={deployment} />
    <RouteSwitch events={deployment.events.filter(isOfSwitch)} />
    <DeploymentFacts deployment={deployment} />
  </Column>
);

const TimeZone = () => (
  <Text size="xs" tone="quiet">
    times in {zoneAt(new Date())}
  </Text>
);

const Events = ({ deployment: { events, story_removed_at } }: { deployment: Deployment }) => (
  <Panel title="Story" id="story" actions={<TimeZone />}>
    {events.length === 0 ? (
      <Text tone="quiet">
        {story_removed_at === null ? 'No events yet' : 'Retention removed the events'}
      </Text>
    ) : (
      <ol className="ladder">
        {events.map((event, index) => (
          <li key={index}>
            <time className="when" dateTime={event.at} title={exactTime(event.at)}>
              {isNewDay(event, events[index - 1]) && (
                <>
                  {dayOf(event)}
                  <br />
                </>
              )}
              {exactTime(event.at).slice(11, 19)}
            </time>
            {/* Leave out the failure message here, because the note above shows it in full. */}
            <Text inline>
              {event.message.includes('\n') ? errorSentence(event.message) : event.message}
            </Text>
          </li>
        ))}
      </ol>
    )}
  </Panel>
);

const dayOf = ({ at }: DeploymentEvent): string => exactTime(at).slice(0, 10);
/** A failover can follow days after the deployment, so the first event of a later day has its date. */
const isNewDay = (event: DeploymentEvent, before: DeploymentEvent | undefined): boolean =>
  before !== undefined && dayOf(event) !== dayOf(before);

/** Kinds of events about the route change. They prove that no request was lost. */
const OF_SWITCH: ReadonlySet<string> = new Set([
  'deploying',
  'route_published',
  'running',
  'port_changed',
  'route_withdrawn',
  'stopped_first',
  'started_again',
  'killed',
  'retired',
  'superseded',
  'retire_done',
  'retire_failed',
  'retire_lost',
]);
const isOfSwitch = ({ kind }: DeploymentEvent): boolean => OF_SWITCH.has(kind);

function RouteSwitch({ events }: { events: readonly DeploymentEvent[] }) {
  const [first] = events;
  if (first === undefined) return null;
  return (
    <Panel title="The switch" id="switch">
      <ol className="ladder">
        {events.map((event, index) => (
          <li key={index}>
            <span className="when">
              +{durationText(Date.parse(event.at) - Date.parse(first.at))}
            </span>
            <Text inline>{event.message}</Text>
          </li>
        ))}
      </ol>
    </Panel>
  );
}

type HashProps = {
  text: string;
  /** Number of characters that the page shows; the button copies the whole text. */
  length: number;
  what: string;
};
const Hash = ({ text, length, what }: HashProps) => (
  <>
    <Code>{text.slice(0, length)}</Code> <Copy text={text} label={`Copy the ${what}`} />
  </>
);

function DeploymentFacts({ deployment }: { deployment: Deployment }) {
  const { id, commit, commit_author, trigger, health, image_digest, finished_at } = deployment;
  return (
    <Panel title="Facts" id="facts">
      <Facts
        items={[
          ['Id', <Code key="i">{id}</Code>],
          commit === null
            ? null
            : ['Commit', <Hash key="c" text={commit} length={12} what="commit" />],
          commit_author === null ? null : ['Author', commit_author],
          trigger === null ? null : ['Trigger', triggerText(deployment)],
          health === null ? null : ['Health', <HealthStatus key="h" health={health} />],
          image_digest === null
            ? null
            : ['Image', <Hash key="d" text={image_digest} length={19} what="digest" />],
          finished_at === null ? null : ['Finished', <Exact key="f" at={finished_at} />],
        ]}
      />
    </Panel>
  );
}
