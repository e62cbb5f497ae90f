//! `sidestream topics`: what there is, from a running proxy, and new diskless topics, through the Kafka protocol.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use serde_json::Value;

use super::table::{Align, Column, bytes, layout};
use super::{admin_client, assignment, say};
use crate::types::Endpoint;

#[derive(Subcommand, Debug)]
pub(super) enum Command {
    /// List the topics of both kinds.
    List(Admin),
    /// Show all that is known of one diskless topic.
    Describe {
        topic: String,
        #[command(flatten)]
        admin: Admin,
    },
    /// Create a diskless topic.
    Create(Create),
}

/// Where the running proxy's admin server listens.
#[derive(Args, Debug)]
pub(super) struct Admin {
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8080")]
    admin: Endpoint,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
pub(super) struct Create {
    topic: String,
    /// The proxy's bootstrap address.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:9092")]
    bootstrap: String,
    #[arg(long, default_value = "1")]
    partitions: i32,
    /// Replicas of the empty shadow topic in Kafka; -1 takes the cluster's default.
    #[arg(long, default_value = "-1", allow_negative_numbers = true)]
    replication_factor: i32,
    /// A topic setting: key=value. Can be given many times.
    #[arg(long, value_name = "KEY=VALUE")]
    config: Vec<String>,
    /// A setting of the Kafka client, such as security.protocol=SSL. Can be given many times.
    #[arg(long, value_name = "KEY=VALUE")]
    property: Vec<String>,
}

pub(super) async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::List(admin) => list(&admin).await,
        Command::Describe { topic, admin } => describe(&topic, &admin).await,
        Command::Create(create) => create_topic(&create).await,
    }
}

async fn list(admin: &Admin) -> anyhow::Result<ExitCode> {
    let topics = admin_client::get(&admin.admin, "/topics?expand=info").await?;
    if admin.json {
        say(&topics.to_string());
        return Ok(ExitCode::SUCCESS);
    }
    let rows: Vec<_> = topics.as_object().into_iter().flatten().map(|(name, info)| row(name, info)).collect();
    if rows.is_empty() {
        say("There are no topics yet. Create a diskless one: sidestream topics create NAME --partitions 3");
        return Ok(ExitCode::SUCCESS);
    }
    let columns = [
        Column("TOPIC", Align::Left),
        Column("KIND", Align::Left),
        Column("PARTITIONS", Align::Right),
        Column("RECORDS", Align::Right),
        Column("SIZE", Align::Right),
        Column("LEADERS", Align::Left),
        Column("NOTE", Align::Left),
    ];
    say(&layout(&columns, &rows));
    Ok(ExitCode::SUCCESS)
}

fn row(name: &str, info: &Value) -> Vec<String> {
    let number = |key: &str| info[key].as_u64().map_or_else(|| "-".to_owned(), |n| n.to_string());
    let strays = info["stray_partitions"].as_u64().unwrap_or(0);
    let note = match strays {
        0 => String::new(),
        n => format!("a client writes past the proxy to {n} partition(s)"),
    };
    vec![
        name.to_owned(),
        info["kind"].as_str().unwrap_or("?").to_owned(),
        number("partitions"),
        number("records"),
        info["bytes"].as_u64().map_or_else(|| "-".to_owned(), bytes),
        leaders(info),
        note,
    ]
}

/// Each broker with the number of partitions that it leads: `1:2 3:1`.
fn leaders(info: &Value) -> String {
    let one = |(broker, count): (&String, &Value)| format!("{broker}:{count}");
    info["leaders"].as_object().into_iter().flatten().map(one).collect::<Vec<_>>().join(" ")
}

async fn describe(topic: &str, admin: &Admin) -> anyhow::Result<ExitCode> {
    let info = admin_client::get(&admin.admin, &format!("/topics/{topic}")).await?;
    let partitions = admin_client::get(&admin.admin, &format!("/topics/{topic}/partitions")).await?;
    if admin.json {
        let mut info = info;
        info["partition_list"] = partitions;
        say(&info.to_string());
        return Ok(ExitCode::SUCCESS);
    }
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    say(&format!("{}  {}  id {}", text(&info["name"]), text(&info["kind"]), text(&info["topic_id"])));
    for (key, value) in info["config"].as_object().into_iter().flatten() {
        say(&format!("  {key} = {}", text(value)));
    }
    let cell = |p: &Value, key: &str| p[key].to_string();
    let rows: Vec<_> = partitions
        .as_array()
        .into_iter()
        .flatten()
        .map(|p| {
            let size = p["bytes"].as_u64().map_or_else(String::new, bytes);
            let replicas = p["replicas"].as_array().into_iter().flatten().map(Value::to_string).collect::<Vec<_>>();
            vec![
                cell(p, "partition"),
                cell(p, "leader"),
                replicas.join(","),
                cell(p, "log_start_offset"),
                cell(p, "high_watermark"),
                size,
            ]
        })
        .collect();
    let columns = [
        Column("PARTITION", Align::Right),
        Column("LEADER", Align::Right),
        Column("REPLICAS", Align::Left),
        Column("LOG START", Align::Right),
        Column("HIGH WATERMARK", Align::Right),
        Column("SIZE", Align::Right),
    ];
    say(&layout(&columns, &rows));
    Ok(ExitCode::SUCCESS)
}

async fn create_topic(create: &Create) -> anyhow::Result<ExitCode> {
    let mut settings = ClientConfig::new();
    settings.set("bootstrap.servers", &create.bootstrap).set("client.id", "sidestream-cli");
    for property in &create.property {
        let (key, value) = assignment("--property", property)?;
        settings.set(key, value);
    }
    let admin: AdminClient<DefaultClientContext> = settings.create().context("the Kafka client cannot be made")?;
    let replication = TopicReplication::Fixed(create.replication_factor);
    let mut topic = NewTopic::new(&create.topic, create.partitions, replication).set("diskless.enable", "true");
    for config in &create.config {
        let (key, value) = assignment("--config", config)?;
        topic = topic.set(key, value);
    }
    let options = AdminOptions::new().request_timeout(Some(Duration::from_secs(30)));
    let results = admin.create_topics([&topic], &options).await;
    let results =
        results.with_context(|| format!("{} does not answer: is a proxy running there?", create.bootstrap))?;
    match results.into_iter().next() {
        Some(Ok(name)) => say(&format!("Created the diskless topic {name} with {} partition(s).", create.partitions)),
        Some(Err((name, code))) => bail!("topic {name:?} was not created: {code}"),
        None => bail!("the proxy gave no answer for topic {:?}", create.topic),
    }
    Ok(ExitCode::SUCCESS)
}
