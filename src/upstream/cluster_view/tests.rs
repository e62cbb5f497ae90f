//! The view of a scripted cluster: bootstrapping past dead addresses, refreshing, asking as admin.

use std::time::Duration;

use kafka_protocol::messages::list_offsets_response::{ListOffsetsPartitionResponse, ListOffsetsTopicResponse};
use kafka_protocol::messages::metadata_response::MetadataResponseBroker;
use kafka_protocol::messages::{ApiVersionsRequest, BrokerId, ListOffsetsRequest, ListOffsetsResponse};

use super::*;
use crate::types::TopicId;
use crate::upstream::Security;
use crate::upstream::fake_broker::{Act, Asked, offers, start};
use crate::wire::{StrBytes, decode_request};

/// One broker with id 7 that names itself at the port it was asked on.
fn script(port: &Arc<std::sync::OnceLock<u16>>) -> impl Fn(&Asked) -> Act + Clone + Send + Sync + 'static {
    let port = Arc::clone(port);
    move |asked| match asked.header.api_key {
        18 => asked.answer::<ApiVersionsRequest>(&offers(&[(3, 0, 13), (2, 1, 11)])),
        3 => {
            let broker = MetadataResponseBroker::default()
                .with_node_id(BrokerId(7))
                .with_host(StrBytes::from_static_str("127.0.0.1"))
                .with_port(i32::from(*port.get().expect("started")))
                .with_rack(Some(StrBytes::from_static_str("a")));
            let request: MetadataRequest =
                decode_request(asked.header.api_version, asked.body.clone()).expect("decodes");
            assert!(!request.allow_auto_topic_creation);
            let answer = MetadataResponse::default()
                .with_brokers(vec![broker])
                .with_controller_id(BrokerId(7))
                .with_cluster_id(Some(StrBytes::from_static_str("cluster")));
            asked.answer::<MetadataRequest>(&answer)
        }
        2 => {
            let partition = ListOffsetsPartitionResponse::default().with_partition_index(3).with_offset(42);
            let topic = ListOffsetsTopicResponse::default().with_partitions(vec![partition]);
            asked.answer::<ListOffsetsRequest>(&ListOffsetsResponse::default().with_topics(vec![topic]))
        }
        _ => Act::Close,
    }
}

async fn view() -> (ClusterView, Tasks) {
    let (tasks, _) = Tasks::new();
    let port = Arc::default();
    let endpoint = start(&tasks, script(&port)).await;
    port.set(endpoint.port).expect("once");
    // Nobody listens on port 1.
    let dead = Endpoint { host: "127.0.0.1".to_owned(), port: 1 };
    let connector = Connector::new(Security::default(), Duration::from_secs(5)).expect("plaintext");
    (ClusterView::new(connector, Settings::default(), vec![dead, endpoint], tasks.clone()), tasks)
}

#[tokio::test]
async fn a_dead_bootstrap_address_is_passed_over() {
    let (view, _tasks) = view().await;
    assert!(view.broker(7).await.is_err(), "nothing is known yet");
    let cluster = view.refresh().await.expect("the second address answers");
    assert_eq!((cluster.id.as_str(), cluster.controller), ("cluster", Some(7)));
    assert_eq!(cluster.brokers[&7].rack.as_deref(), Some("a"));
    let connection = view.broker(7).await.expect("connects");
    let again = view.controller().await.expect("connects");
    assert!(Arc::ptr_eq(&connection, &again), "one connection per broker");
}

#[tokio::test]
async fn a_broken_connection_is_replaced() {
    let (view, _tasks) = view().await;
    view.refresh().await.expect("answers");
    let first = view.broker(7).await.expect("connects");
    let request = kafka_protocol::messages::DescribeClusterRequest::default();
    assert!(first.request(&request, 0).await.is_err(), "the script closes");
    let second = view.broker(7).await.expect("connects again");
    assert!(!Arc::ptr_eq(&first, &second) && second.is_usable());
}

#[tokio::test]
async fn admin_questions_reach_the_right_broker() {
    let (view, _tasks) = view().await;
    view.metadata_by_names(&["a"]).await.expect("answers");
    view.metadata_by_ids(&[TopicId([1; 16])]).await.expect("answers");
    view.metadata_of_all_topics().await.expect("answers");
    let offsets = view.list_offsets(7, "a", &[3], -1).await.expect("answers");
    assert_eq!((offsets[0].partition, offsets[0].error_code, offsets[0].offset), (3, 0, 42));
    assert!(view.describe_topic_configs(&["a"]).await.is_err(), "not offered");
}
